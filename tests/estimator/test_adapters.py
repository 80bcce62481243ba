"""PEFT's adapters beyond LoRA against what PEFT allocated (`data/adapters.json`, nothing is fitted to it)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint import estimate
from gpulint.estimator.activations import instants
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Adapter, Fsdp, Job, Quantization
from gpulint.models.adapter_types import OPTIONS, kind_of
from gpulint.models.resolve import resolve

DATA = json.loads((Path(__file__).parent / "data" / "adapters.json").read_text())
FORWARD = ("forward", "loss")
WAITING = 0.005
"""Gradients of matrices that layers share are counted all at once."""


def adapter_of(config, **more):
    """The Adapter of a PEFT config: its rank, targets and what its type has of its own."""
    found = Adapter(config["peft_type"].lower(), **more)
    usual = OPTIONS.get(kind_of(found), {}).get("r", 8)
    found.r = config.get("init_r") or config.get("r") or usual
    found.targets = config.get("target_modules")
    found.options = {key: value for key, value in config.items() if key not in ("peft_type", "target_modules")}
    return found


def job_of(row):
    point = row["point"]
    packed = point.get("method") == "qlora"
    config = {**DATA["config"], "vocab_size": point.get("vocabulary", DATA["config"]["vocab_size"])}
    job = Job(model=config, method="lora", reentrant=False)
    prepared, dtype = bool(point.get("kbit_prepare")), point.get("dtype")
    job.adapter = adapter_of(DATA["adapters"][row["adapter"]], prepare_kbit=prepared, dtype=dtype)
    job.weights.dtype = "bfloat16"
    job.micro_batch_size, job.sequence_length = 2, 512
    job.activation_checkpointing = point.get("checkpointing", "none")
    job.padded = point.get("attention_mask") == "padded"
    job.precision.autocast = "bfloat16" if point["precision"] == "bf16-amp" else None
    job.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True) if packed else None
    return job


@pytest.mark.parametrize(
    "row", DATA["rows"], ids=lambda row: "-".join((row["adapter"], *map(str, row["point"].values())))
)
def test_an_adapter_takes_what_peft_allocates(row):
    job = job_of(row)
    model = resolve(job.model)
    items = parameters(job, model)
    assert sum(item.elements for item in items if item.trainable) == row["trainable"]
    tables = sum(item.raw for item in items if item.name.endswith("shira_indices"))  # plain tensors, no buffers
    assert sum(item.raw for item in items) - tables == pytest.approx(row["load"], abs=1024)
    width = round(row["gradients"] / row["trainable"])
    static = row["load"] + tables + row["optimizer"]
    peaks = {"forward": 0, "backward": 0}
    for x in instants(job, model):
        phase = "forward" if x.phase in FORWARD else x.phase
        size = static + x.activations + x.logits + width * x.gradient_elements
        peaks[phase] = max(peaks[phase], size)
    assert peaks["forward"] == pytest.approx(row["forward"], rel=0.002)
    assert peaks["backward"] == pytest.approx(row["backward"], rel=WAITING if row["adapter"] == "lily" else 0.002)


def small(kind, **options):
    job = Job(model=DATA["config"], method="lora")
    job.adapter = adapter_of({"peft_type": kind, **options})
    job.weights.dtype, job.micro_batch_size, job.sequence_length = "bfloat16", 1, 256
    return job


def test_a_type_that_nobody_read_is_refused_by_its_name():
    with pytest.raises(NotEstimable, match="adapters of type frod are not modelled"):
        estimate(small("FROD"))


def test_virtual_tokens_must_be_counted_by_the_config():
    with pytest.raises(NotEstimable, match="num_virtual_tokens"):
        estimate(small("PROMPT_TUNING"))


def test_prefix_tuning_is_refused_with_checkpointing():
    job = small("PREFIX_TUNING", num_virtual_tokens=20)
    job.activation_checkpointing = "full"
    with pytest.raises(NotEstimable, match="prefix tuning"):
        estimate(job)


def test_these_types_are_not_divided_by_tensor_parallelism():
    job = small("IA3")
    job.parallelism.tensor, job.hardware.gpus = 2, 2
    with pytest.raises(NotEstimable, match="whole models alone"):
        estimate(job)


def test_tables_are_not_divided_by_fsdp():
    job = small("VERA")
    job.parallelism.fsdp = Fsdp()
    with pytest.raises(NotEstimable, match="whole models alone"):
        estimate(job)


@pytest.mark.parametrize("model", ["google-t5/t5-base", "deepseek-ai/DeepSeek-V3"])
def test_a_prefix_is_not_put_before_attention_of_another_kind(model):
    job = small("PREFIX_TUNING", num_virtual_tokens=20)
    job.model = model
    with pytest.raises(NotEstimable, match="not modelled on"):
        estimate(job)


def test_adalora_trains_its_count_of_ranks_since_peft_0_21():
    job = small("ADALORA", init_r=8)
    now = estimate(job)
    job.versions = {"peft": "0.20.0"}
    before = estimate(job)
    assert now.trainable_parameters - before.trainable_parameters == 8
    assert now.per_gpu.allocated > before.per_gpu.allocated


def test_lora_fa_saves_no_input_and_trains_half():
    job, frozen = small("LORA", r=64), small("LORA-FA", r=64)
    whole, half = estimate(job), estimate(frozen)
    assert half.trainable_parameters < whole.trainable_parameters
    assert half.per_gpu.allocated < whole.per_gpu.allocated


@pytest.mark.parametrize(
    ("adapter", "word"),
    [
        ({"type": "vblora", "options": {"num_vectors": 0}}, "num_vectors"),
        ({"type": "lily", "options": {"num_B": 0}}, "num_B"),
        ({"type": "tinylora", "options": {"u": 0}}, "`u`"),
        ({"type": "tinylora", "options": {"weight_tying": "x"}}, "weight_tying"),
        ({"type": "miss", "options": {"init_weights": "mini", "mini_r": 0}}, "mini_r"),
        ({"type": "oft", "options": {"oft_block_size": "0"}}, "oft_block_size"),
        ({"type": "peanut", "options": {"depth": 20_000_000}}, "depth"),
        ({"type": "hra", "r": 20_000_000}, "reflections"),
        ({"type": "ia3", "options": {"feedforward_modules": 3}}, "feedforward_modules"),
    ],
)
def test_numbers_that_make_no_adapter_are_refused_by_their_name(adapter, word):
    job = Job.validate(
        {
            "model": "Qwen/Qwen2.5-0.5B",
            "method": "lora",
            "adapter": {"targets": ["q_proj", "down_proj"], **adapter},
            "micro_batch_size": 1,
            "sequence_length": 64,
        }
    )
    with pytest.raises(NotEstimable, match=word):
        estimate(job)
