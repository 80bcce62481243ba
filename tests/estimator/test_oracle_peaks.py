"""Whole training steps against what the real libraries allocated: peak, phase by phase, and where the peak is.

Points whose loop is not the Trainer's (`loop: naive` keeps the model's outputs alive) are left out.
"""

from __future__ import annotations

from statistics import mean

import pytest

from gpulint.estimator.allocator import runtime
from gpulint.estimator.estimate_job import estimate_job
from gpulint.models.resolve import resolve

PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "optimizer": ("optimizer_step",)}


@pytest.fixture(scope="module")
def runs(shared_data, oracle_rows):
    """(row, bytes by phase) of each run; the oracle leaves cuBLAS workspaces out."""
    found = []
    for row in shared_data("oracle"):
        point = row["point"]
        if point.get("mode") == "infer" or point.get("loop"):
            continue
        job = oracle_rows.job_of(row)
        estimate = estimate_job(job, resolve(row["config"]), None)
        workspace = runtime.allocated_workspace(job, None)
        found.append((row, {phase.name: phase.allocated - workspace for phase in estimate.phases}))
    assert len(found) == 221
    return found


def test_the_peak(runs):
    errors = [max(phases.values()) / row["peak_bytes_512"] - 1 for row, phases in runs]
    assert max(abs(error) for error in errors) < 0.005
    assert mean(abs(error) for error in errors) < 0.0005


@pytest.mark.parametrize("name", PHASES)
def test_every_phase(runs, name):
    for row, phases in runs:
        estimated = max(phases[part] for part in PHASES[name])
        assert estimated == pytest.approx(row["phase_peaks"][name], rel=0.005), row["point"]


def test_where_the_peak_is(runs):
    agreed = sum(max(phases, key=phases.get) in PHASES[row["peak_phase"]] for row, phases in runs)
    assert agreed >= len(runs) - 2
