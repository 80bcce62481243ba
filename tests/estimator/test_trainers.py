"""Whole steps of preference, online and reward trainers and of optimizers against what the real ones allocated.

`data/trainers.json` holds points of a sweep over TRL's releases and over optimizers; nothing is fitted to them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint import estimate
from gpulint.estimator.frameworks.release import Trl, trl
from gpulint.job.job import Job, Loss

DATA = json.loads((Path(__file__).parent / "data" / "trainers.json").read_text())
WORKSPACE = int(8.125 * (1 << 20))
"""A cuBLAS workspace, which the oracle has not (aten/src/ATen/cuda/CublasHandlePool.cpp)."""

TILED = ("sft", "dpo", "kto", "grpo", "rloo")
"""Objectives of TRL 1.16 whose head is fused."""

STEP = ("forward", "loss", "backward", "optimizer_step")


def name(row):
    return "-".join([row["family"], *(str(value) for value in row["point"].values())])


def job_of(row, oracle_rows):
    point = row["point"]
    job = oracle_rows.job_of({"point": point, "config": DATA["configs"][row["family"]]})
    job.optimizer.rank = point.get("rank")
    if job.adapter is not None and point.get("no_adapter_upcast"):
        job.adapter.dtype = job.weights.dtype
    trainer, release = point["trainer"], point.get("trl", "1.16.0")
    if trainer == "plain":
        return job
    job.objective, job.versions["trl"] = trainer, release
    if trainer in TILED and release == "1.16.0":
        job.loss = Loss("chunked", 4096)
    elif release in ("1.14.0", "1.16.0"):
        job.loss.log_softmax = "kernel"
    job.rl.reference_apart = trainer in ("dpo", "kto")
    job.rl.precompute_reference = not point.get("ref", True)
    if "completion" in point:
        job.rl.prompt_length, job.rl.completion_length = point["prompt"], point["completion"]
        job.rl.reference_model = False
        job.sequence_length = point["prompt"] + point["completion"]
    return job


@pytest.mark.parametrize("row", DATA["rows"], ids=name)
def test_a_step_takes_what_the_trainer_allocates(row, oracle_rows):
    phases: dict[str, int] = {}
    for phase in estimate(job_of(row, oracle_rows)).phases:
        phases[phase.name] = max(phases.get(phase.name, 0), phase.allocated - 2 * WORKSPACE)
    assert max(phases[phase] for phase in STEP) == pytest.approx(row["peak"], rel=0.005)
    assert phases["optimizer_step"] == pytest.approx(row["optimizer_step"], rel=0.005)


@pytest.mark.parametrize(
    ("objective", "release", "expected"),
    [
        ("grpo", "0.15.2", Trl()),
        ("grpo", "0.19.1", Trl("anew")),
        ("grpo", "0.29.0", Trl("anew", True)),
        ("rloo", "1.9.0", Trl("in_place", True)),
        ("grpo", "1.12.0", Trl("beside", True)),
        ("dpo", "0.28.0", Trl()),
        ("dpo", "1.9.0", Trl("", True, True)),
        ("kto", "1.7.1", Trl()),
        ("kto", "1.14.0", Trl("", False, True)),
        ("sft", "1.9.0", Trl("", True)),
        ("dpo", "1.15.0", Trl()),
        ("orpo", "1.9.0", Trl()),
    ],
)
def test_releases_of_trl_differ_in_what_they_make_of_logits(objective, release, expected):
    assert trl(Job(objective=objective, versions={"trl": release})) == expected


def test_programs_with_a_trainer_of_their_own_log_no_entropies():
    assert trl(Job(framework="axolotl", versions={"trl": "1.9.0"})) == Trl()
    assert trl(Job(objective="dpo", versions={"trl": "1.9.0"}, loss=Loss(log_softmax="float32"))) == Trl()
