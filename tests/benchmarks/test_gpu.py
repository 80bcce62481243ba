"""The measuring script: its grid, its jobs, its rows; with torch and transformers, a tiny run on the CPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from benchmarks.accuracy import figures, gpu_rows
from benchmarks.gpu import grid, rows
from gpulint.job.job import Job

VERSIONS = {"torch": "2.9.0", "transformers": "5.23.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
GIB = 1 << 30


def job_of(point) -> Job:
    plan = rows.job(point, grid.config(point), VERSIONS)
    assert plan.pop("gpulint") == "job/v1"
    return Job.validate(plan)


def result(**changes):
    sizes = {"allocated": 3 * GIB, "reserved": 4 * GIB, "process": 5 * GIB}
    return {
        "outcome": "ok",
        "versions": VERSIONS,
        "device": {"name": "NVIDIA H100 80GB HBM3", "total": 79 * GIB, "cuda": "12.8"},
        "phases": {"load": dict.fromkeys(sizes, GIB), "backward": sizes},
        "nvidia_smi": 5 * GIB,
        **changes,
    }


def test_points_have_names_of_their_own_and_every_slice_some_of_each_kind():
    points = grid.points()
    assert len({point.id for point in points}) == len(points) > 100
    for index in range(4):
        assert {point.method for point in points[index::4]} == {"full", "lora", "qlora", "generate"}


def test_every_point_is_a_job_that_can_be_estimated():
    for point in grid.points():
        estimate = figures.run(job_of(point))
        assert estimate.per_gpu.allocated > 0, point.id
        assert estimate.kind == ("inference" if point.method == "generate" else "training")


def test_precision_and_method_in_the_words_of_a_job():
    shape = ("llama3-8b", "qlora", "bf16-over-bf16", 1, 64)
    qlora = job_of(grid.Point(*shape, "full", "paged_adamw_8bit", targets="all-linear"))
    assert (qlora.weights.dtype, qlora.precision.autocast) == ("bfloat16", "bfloat16")
    assert (qlora.weights.quantization.method, qlora.weights.quantization.double_quant) == ("bnb-nf4", True)
    assert (qlora.method, qlora.adapter.targets, qlora.adapter.prepare_kbit) == ("lora", "all-linear", True)
    mixed = job_of(grid.Point("gpt2", "full", "bf16-amp", 2, 64, "none", "sgd"))
    assert (mixed.weights.dtype, mixed.precision.autocast, mixed.adapter) == ("float32", "bfloat16", None)


def test_a_row_has_the_fields_of_the_published_measurements(shared_data):
    point = grid.points()[0]
    made = rows.row("own-x", point, grid.config(point), result())
    assert made["measured_value"] == 3 * GIB
    assert made["measured_gib"] == 3.0
    published = shared_data("measurements")[0]
    assert set(made) - {"job"} <= set(published)


def test_files_of_rows_are_scored(tmp_path):
    point = grid.points()[0]
    fits = rows.row("own-fits", point, grid.config(point), result())
    oom = rows.row("own-oom", point, grid.config(point), result(outcome="oom"))
    (tmp_path / "cuda-1-of-8.json").write_text(json.dumps({"rows": [fits, oom], "failed": {}}))
    cases = gpu_rows.cases(tmp_path)
    assert [(case.figure, case.measured and case.measured / GIB, case.outcome) for case in cases] == [
        ("allocated", 3, "fits"),
        ("reserved", 4, None),
        ("process", 5, None),
        ("process", None, "oom"),
    ]
    assert {case.group for case in cases} == {"own GPU runs"}
    assert cases[0].job.hardware.gpu == "h100-80gb"


def test_rows_without_memory_figures_are_no_cases():
    point = grid.points()[0]
    empty = dict.fromkeys(("allocated", "reserved", "process"))
    nothing = result(phases={"load": empty}, nvidia_smi=None, device={"name": None, "total": None, "cuda": None})
    assert gpu_rows.of_row(rows.row("own-x", point, grid.config(point), nothing)) == []


def test_nothing_is_scored_from_an_empty_folder(tmp_path):
    assert gpu_rows.cases(tmp_path) == []


@pytest.mark.skipif(
    not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")), reason="needs torch"
)
def test_tiny_run_on_the_cpu(tmp_path, root):
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path)]
    only = ["--only", "gpt2-full-bf16-2x1024-adamw_torch_fused"]
    for _ in range(2):
        subprocess.run([*command, *only], cwd=root, check=True, capture_output=True, text=True, timeout=600)
    found = json.loads((tmp_path / "cpu-1-of-1.json").read_text())
    assert not found["failed"]
    assert len(found["rows"]) == len([p for p in grid.points() if only[1] in p.id])
    steps = ("forward", "loss", "backward", "optimizer_step")
    for row in found["rows"]:
        assert list(row["extra_measurements"]["phases"]) == ["load", *steps, *(f"second {step}" for step in steps)]
        assert row["measured_value"] is None
