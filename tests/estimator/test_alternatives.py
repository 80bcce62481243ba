"""Facts that a job names as unstated, and the interval over what they may be."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.estimate import envelope
from gpulint.estimator.scenarios import EXTREMES
from gpulint.job.job import Job

BASE = {
    "model": "meta-llama/Llama-3.2-1B",
    "method": "lora",
    "weights": {"dtype": "bfloat16", "quantization": {"method": "bnb-nf4", "bits": 4}},
    "adapter": {"r": 16, "targets": ["q_proj", "v_proj"]},
    "micro_batch_size": 4,
    "sequence_length": 2048,
    "packing": True,
    "optimizer": {"name": "adamw_torch"},
    "parallelism": {"zero": {"stage": 2}},
    "hardware": {"gpu": "a100-40gb", "gpus": 2},
    "versions": {"torch": "2.4"},
}


def job(**fields) -> Job:
    return Job.validate({**BASE, **fields})


@pytest.mark.parametrize("path", EXTREMES)
def test_the_interval_holds_every_extreme_of_a_fact(path):
    serving = {
        "kind": "inference",
        "method": "full",
        "adapter": None,
        "parallelism": {},
        "inference": {"engine": "vllm"},
    }
    sharded = {"parallelism": {"fsdp": {"version": 1}}, "gradient_accumulation_steps": 4}
    given = serving if path.startswith("inference.") else {"parallelism": {}} if path.endswith("zero.stage") else {}
    given = sharded if path.startswith("parallelism.fsdp.") else given
    stated, open_ = estimate(job(**given)), estimate(job(**given, unstated=[path]))
    assert open_.per_gpu.process == stated.per_gpu.process
    assert open_.per_gpu.low <= stated.per_gpu.low
    assert open_.per_gpu.high >= stated.per_gpu.high
    for value in EXTREMES[path]:
        other = estimate(job(**given).with_changes({path: value})).per_gpu
        assert open_.per_gpu.low <= other.low
        assert other.high <= open_.per_gpu.high
    (note,) = (item for item in open_.assumptions if item.field == path)
    assert note.low == stated.per_gpu.low - open_.per_gpu.low
    assert note.high == open_.per_gpu.high - stated.per_gpu.high


def test_facts_that_move_memory_move_the_interval():
    targets = estimate(job(unstated=["adapter.targets"]))
    both = estimate(job(unstated=["adapter.targets", "adapter.r"]))
    assert estimate(job()).per_gpu.high < targets.per_gpu.high < both.per_gpu.high


def test_a_job_that_may_or_may_not_fit_is_tight():
    large = {
        "sequence_length": 4096,
        "loss": "liger",
        "hardware": {"gpu": "rtx-4090", "gpus": 1},
        "parallelism": {},
    }
    eager = estimate(job(**large, activation_checkpointing="none").with_changes({"attention": "eager"}))
    fused = estimate(job(**large, activation_checkpointing="full"))
    assert (fused.verdict, eager.verdict) == ("fits", "exceeds")
    unknown = job(**large, activation_checkpointing="full", unstated=["attention", "activation_checkpointing"])
    assert estimate(unknown).verdict == "tight"


def test_a_part_that_the_job_lacks_leaves_the_interval_alone():
    full = {"method": "full", "adapter": None, "weights": {"dtype": "bfloat16"}}
    stated, open_ = estimate(job(**full)), estimate(job(**full, unstated=["adapter.targets", "inference.max_num_seqs"]))
    assert open_.per_gpu == stated.per_gpu


@pytest.mark.parametrize(
    ("verdicts", "found"),
    [
        (("fits", "fits"), "fits"),
        (("exceeds", "exceeds"), "exceeds"),
        (("fits", "exceeds"), "tight"),
        (("fits", "tight"), "tight"),
        (("fits", "unknown"), "unknown"),
    ],
)
def test_verdicts_that_differ_are_tight(verdicts, found):
    assert envelope(*verdicts) == found


def test_a_cache_lies_between_what_every_fact_leaves_it():
    serving = {
        "kind": "inference",
        "method": "full",
        "adapter": None,
        "weights": {"quantization": {"method": "awq", "bits": 4, "group_size": 128}},
        "hardware": {"gpu": "a100-40gb"},
        "inference": {"engine": "vllm", "version": "0.8.5", "max_model_len": 8192},
        "parallelism": {},
    }
    facts = ["inference.max_num_seqs", "inference.max_num_batched_tokens", "weights.quantization.group_size"]
    stated, open_ = estimate(job(**serving)).kv_cache, estimate(job(**serving, unstated=facts)).kv_cache
    assert open_.tokens == stated.tokens
    assert open_.low < stated.low < stated.high < open_.high
    most = dict(zip(facts, (1024, 16384, 32), strict=True))
    assert open_.low == estimate(job(**serving).with_changes(most)).kv_cache.low
