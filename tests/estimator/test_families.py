"""Small models of every family that is read, under many settings, against what the real libraries allocated.

`data/families.json` is made by `scripts/family_points.py`; nothing is fitted to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from gpulint import estimate
from gpulint.estimator.activations import instants
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.forward.network import network
from gpulint.estimator.states.parameters import allocated, parameters
from gpulint.estimator.unmodeled import derived, gaps
from gpulint.job.job import Inference, Job
from gpulint.models.resolve import resolve

DATA = json.loads((Path(__file__).parent / "data" / "families.json").read_text())
FORWARD = ("forward", "loss")
WORKSPACE = int(8.125 * (1 << 20))
"""A cuBLAS workspace, which the oracle has not (aten/src/ATen/cuda/CublasHandlePool.cpp)."""


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.fixture(scope="module")
def errors(oracle_rows):
    """(family, setting, phase) -> relative error of the bytes alive at the phase's peak, of families that are read."""
    found = {}
    for row in DATA["rows"]:
        point, config = DATA["settings"][row["setting"]], DATA["configs"][row["family"]]
        model = resolve(config)
        if point.get("mode") == "infer" or not derived(model):
            continue
        job = oracle_rows.job_of({"point": point, "config": config})
        gradients, trained = row["trained"]
        peaks = {"forward": 0.0, "backward": 0.0}
        for x in instants(job, model):
            phase = "forward" if x.phase in FORWARD else x.phase
            size = x.activations + x.logits + round(gradients / trained) * x.gradient_elements
            peaks[phase] = max(peaks[phase], row["static"] + size)
        for phase, size in peaks.items():
            found[row["family"], row["setting"], phase] = size / row[phase] - 1
        if point.get("method") != "qlora":
            size = allocated(parameters(job, model))
            found[row["family"], row["setting"], "load"] = size / row["load"] - 1
    return found


@pytest.mark.parametrize("phase", ["load", "forward", "backward"])
def test_every_phase_is_what_the_libraries_allocate(errors, phase):
    off = [abs(error) for (_, _, name), error in errors.items() if name == phase]
    assert len(off) > 100
    assert median(off) < 0.0005
    assert percentile(off, 0.95) < 0.005
    assert max(off) < 0.0125, max(errors, key=lambda key: abs(errors[key]))


def test_a_prompt_and_its_answer_take_what_the_libraries_allocate(oracle_rows):
    off = {}
    for row in DATA["rows"]:
        point, config = DATA["settings"][row["setting"]], DATA["configs"][row["family"]]
        if point.get("mode") != "infer" or not derived(resolve(config)):
            continue
        estimated = estimate(oracle_rows.job_of({"point": point, "config": config}))
        phases = {phase.name: phase.allocated - WORKSPACE for phase in estimated.phases}
        for name in ("prefill", "decode"):
            off[row["family"], point["attn"], name] = abs(phases[name] / row[name] - 1)
    assert median(off.values()) < 0.001
    assert max(off.values()) < 0.015, max(off, key=lambda key: off[key])
    eager = [error for (_, attention, _), error in off.items() if attention == "eager"]
    assert len(eager) >= 10
    assert max(eager) < 0.0025


def test_falcon_keeps_its_grouped_keys_for_every_head():
    config = DATA["configs"]["falcon-new"]
    job = Job(kind="inference", model=config)
    job.weights.dtype = "bfloat16"
    job.inference = Inference(batch_size=1, prompt_length=64, new_tokens=64)
    kept = estimate(job).phases[-1].components["kv_cache"]
    assert kept == 2 * (64 + 63) * config["num_hidden_layers"] * 2 * config["hidden_size"]


@pytest.mark.parametrize(
    ("stated", "without"),
    [
        ({}, [4, 8]),
        ({"no_rope_layer_interval": 3}, [3, 6, 9]),
        ({"no_rope_layers": [1, 0, 1, 1, 1, 0, 1, 1, 1], "no_rope_layer_interval": 3}, [2, 6]),
        ({"no_rope_layers": [0, 1]}, [1, 4, 8]),
    ],
)
def test_every_fourth_layer_has_no_rotary_embedding_where_none_is_named(stated, without):
    """SmolLM3, nine layers, counted from 1; a list that is too short says nothing of the layers after it."""
    model = resolve(
        {"model_type": "smollm3", "hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3,
         "vocab_size": 1009, "intermediate_size": 112, "num_hidden_layers": 9, "max_position_embeddings": 4099,
         **stated}
    )  # fmt: skip
    found = network(Job(micro_batch_size=1, sequence_length=130), model).dims.rope_types
    assert [number for number, kind in enumerate(found, 1) if kind == "none"] == without


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe_lite", "youtu"])
def test_queries_without_a_rank_save_less_than_through_one(family):
    peaks = {}
    for rank in (None, 384):
        config = {**DATA["configs"][family], "q_lora_rank": rank}
        job = Job(kind="training", model=config, sequence_length=512, micro_batch_size=1)
        peaks[rank] = max(x.activations for x in instants(job, resolve(job.model)))
    assert 0 < peaks[None] < peaks[384]


def test_queries_of_a_rank_of_nothing_are_refused():
    config = {**DATA["configs"]["youtu"], "q_lora_rank": 0}
    job = Job(kind="training", model=config, sequence_length=512, micro_batch_size=1)
    with pytest.raises(NotEstimable, match="q_lora_rank of 0"):
        estimate(job)


def test_a_family_that_is_not_read_is_said_to_be_assumed(oracle_rows):
    unread = [config for config in DATA["configs"].values() if not derived(resolve(config))]
    assert unread
    for config in unread:
        job = oracle_rows.job_of({"point": DATA["settings"]["B"], "config": config})
        assert [note.field for note in gaps(job, resolve(config), 0)] == ["model.layers"]
