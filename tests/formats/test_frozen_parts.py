"""Freeze and tune flags of scripts that train vision-language models."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.estimator.states.parameters import trainable_parameters
from gpulint.models.resolve import resolve

from .conftest import read_as

QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"
BASE = "per_device_train_batch_size: 1\nlearning_rate: 1e-5\noutput_dir: out\nmodel_max_length: 2048\nbf16: true\n"


def trained(flags, model=QWEN):
    job = read_as("hf_trainer", f"model_name_or_path: {model}\n{BASE}{flags}").job
    return trainable_parameters(job, resolve(model, "/", "/")), job


def parts(count):
    """The parts whose parameters add up to that count."""
    sizes = {"vision": 0, "projector": 0, "llm": 0}
    for tensor in resolve(QWEN, "/", "/").tensors:
        inside = tensor.name.startswith("model.visual.")
        part = "projector" if tensor.name.startswith("model.visual.merger") else "vision" if inside else "llm"
        sizes[part] += 0 if tensor.buffer else tensor.elements
    sums = {0: ""}
    for name, size in sizes.items():
        sums |= {total + size: f"{said} {name}".strip() for total, said in sums.items()}
    return sums.get(count, count)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "vision projector llm"),
        ("tune_mm_vision: false\ntune_mm_mlp: true\ntune_mm_llm: true\n", "projector llm"),
        ("tune_mm_mlp: true\n", "projector"),
        ("freeze_vision_tower: true\nfreeze_llm: false\nfreeze_merger: true\n", "llm"),
        ("freeze_llm: true\nfreeze_vision_tower: false\nfreeze_merger: false\n", "vision projector"),
        ("freeze_vision_tower: false\n", "vision projector llm"),
        ("freeze_llm: true\nfreeze_mlp: false\nfreeze_backbone: true\n", "projector"),
        ("mm_tunable_parts: mm_vision_tower,mm_mlp_adapter\n", "vision projector"),
        ("tune_mm_mlp_adapter: true\n", "projector"),
        ("tune_vision: false\ntune_llm: true\n", "projector llm"),
    ],
)
def test_parts_that_are_trained(flags, expected):
    assert parts(trained(flags)[0]) == expected


def test_the_flag_is_the_origin_and_no_flag_says_nothing():
    job = trained("freeze_vision_tower: true\n")[1]
    assert (job.origins["trainable"].key, job.origins["trainable"].span.line) == ("freeze_vision_tower", 7)
    assert "trainable" not in trained("")[1].origins


def test_llavas_backbone_is_the_language_model():
    assert trained("freeze_backbone: true\nmm_projector_type: mlp2x_gelu\n", "lmsys/vicuna-7b-v1.5")[0] == 0


def test_an_adapter_is_trained_whatever_is_frozen():
    job = trained("lora_enable: true\nlora_target_modules: [q_proj]\nfreeze_llm: true\n")[1]
    assert (job.method, job.trainable) == ("lora", None)


@pytest.mark.parametrize(("rank", "method"), [(0, "full"), (16, "lora")])
def test_internvls_ranks(rank, method):
    job = trained(f"use_llm_lora: {rank}\nfreeze_llm: true\n")[1]
    assert job.method == method
    assert (job.adapter.r if job.adapter else 0) == rank


@pytest.mark.parametrize("flags", ["tune_mm_mlp: true\n", "tune_mm_mlp_adapter: true\n"])
def test_a_projector_in_front_of_frozen_layers_needs_their_activations(flags):
    text = "gradient_checkpointing: false\nfreeze_vision_tower: true\n"
    whole, alone = (estimate(trained(text + more)[1]) for more in ("", flags))
    assert alone.trainable_parameters < whole.trainable_parameters
    assert alone.components["activations"] >= 0.5 * whole.components["activations"]
