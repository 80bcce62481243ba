"""LoRA in fused functions against what axolotl's own allocate (`data/fused_lora.json`, nothing is fitted to it)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.oracle_rows import job_of
from gpulint import estimate
from gpulint.estimator.adapters.lora_kernels import FMS, UNSLOTH, Style, style
from gpulint.estimator.frameworks.attention import fused_operations
from gpulint.job.job import Adapter, Job
from gpulint.models.arch_spec import arch_spec

ROWS = json.loads((Path(__file__).parent / "data" / "fused_lora.json").read_text())
WORKSPACE = 2 * int(8.125 * (1 << 20))
"""cuBLAS's, which the oracle does not run."""

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def of_row(row):
    job = job_of(row)
    job.adapter.kernels = row["kernels"]
    job.framework, job.versions["axolotl"] = "axolotl", row["axolotl"]
    return job


def lora(**more):
    job = Job(model="meta-llama/Llama-3.2-1B", method="lora", micro_batch_size=1, sequence_length=2048)
    job.adapter = Adapter("lora", 16, targets=PROJECTIONS, **more)
    job.precision.autocast, job.weights.dtype, job.framework = "bfloat16", "bfloat16", "axolotl"
    job.loss.kernel = "cut_cross_entropy"
    return job


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['axolotl']}-{'-'.join(row['kernels'])}-{row['peak_bytes']}"
)
def test_what_axolotl_s_functions_allocate(row):
    found = estimate(of_row(row)).per_gpu.allocated - WORKSPACE
    assert found == pytest.approx(row["peak_bytes"], rel=0.00025)


@pytest.mark.parametrize("kernel", ["qkv", "o", "mlp"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_kernel_saves_less_than_peft_s_layers(kernel, checkpointing):
    plain, fused = lora(), lora(kernels=[kernel])
    plain.activation_checkpointing = fused.activation_checkpointing = checkpointing
    held = [estimate(job).per_gpu.allocated for job in (plain, fused)]
    assert held[1] < held[0] if checkpointing == "none" else held[1] <= held[0]


@pytest.mark.parametrize(
    "less", [{"targets": ["q_proj", "v_proj"]}, {"type": "dora"}], ids=["without all projections", "DoRA"]
)
def test_layers_that_the_functions_do_not_take_are_peft_s(less):
    plain = lora()
    plain.adapter = replace(plain.adapter, **less)
    fused = replace(plain, adapter=replace(plain.adapter, kernels=["qkv", "o", "mlp"]))
    assert estimate(fused).per_gpu.allocated == estimate(plain).per_gpu.allocated


@pytest.mark.parametrize(("release", "fused"), [("0.15.0", False), ("0.16.0", True)])
def test_layers_with_dropout_were_left_to_peft_before_0_16(release, fused):
    job = lora(kernels=["qkv", "o", "mlp"], dropout=0.05)
    job.framework, job.versions = "axolotl", {"axolotl": release}
    plain = replace(job, adapter=replace(job.adapter, kernels=[]))
    assert (estimate(job).per_gpu.allocated < estimate(plain).per_gpu.allocated) == fused


@pytest.mark.parametrize(("release", "fused"), [("0.11.0", False), ("0.12.0", True)])
def test_projections_with_a_bias_were_left_to_peft_before_0_12(release, fused):
    job = lora(kernels=["qkv"])
    job.model, job.framework, job.versions = "Qwen/Qwen2.5-0.5B", "axolotl", {"axolotl": release}
    plain = replace(job, adapter=replace(job.adapter, kernels=[]))
    assert (estimate(job).per_gpu.allocated < estimate(plain).per_gpu.allocated) == fused


@pytest.mark.parametrize(
    ("framework", "release", "expected"),
    [
        ("axolotl", "0.19.0", Style()),
        ("axolotl", "0.17.0", Style(in_place=True, additions=True, scaled_input=True)),
        ("unsloth", "2026.8.19", UNSLOTH),
        (None, "2026.8.19", FMS),
    ],
)
def test_whose_functions_they_are(framework, release, expected):
    assert style(Job(framework=framework, versions={"axolotl": release, "unsloth": release})) == expected


def test_dropout_of_fms_acceleration_is_drawn_for_each_projection():
    held = {}
    for name, framework in (("fms", None), ("axolotl", "axolotl")):
        job = lora(kernels=["qkv"], dropout=0.1)
        job.framework, job.versions = framework, {"axolotl": "0.17.0"}
        held[name] = estimate(job).per_gpu.allocated
    assert held["fms"] > held["axolotl"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [(None, {"rope", "norm", "mlp", "loss"}), (["norm"], {"norm"}), (["mlp", "rope"], {"mlp", "rope"}), ([], set())],
)
def test_liger_s_parts_of_a_layer(parts, expected):
    found = arch_spec("llama", {}, "rms")
    assert fused_operations(Job(liger_kernels=True, liger_parts=parts), found) == expected
    assert not fused_operations(Job(liger_parts=parts), found)
