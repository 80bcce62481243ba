"""Whole training steps against what the real libraries allocated and what an allocator's replay of that reserved.

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
    """(row, estimate, what it counts of the process alone, cuBLAS workspaces) of each run."""
    found = []
    for row in shared_data("oracle"):
        point = row["point"]
        if point.get("mode") == "infer" or point.get("loop"):
            continue
        job = oracle_rows.job_of(row)
        estimate = estimate_job(job, resolve(row["config"]), None)
        found.append((row, estimate, runtime.process_overhead(None, job), runtime.allocated_workspace(job, None)))
    assert len(found) == 221
    return found


@pytest.fixture(scope="module")
def phases(runs):
    """(row, bytes by phase) of each run; the oracle leaves cuBLAS workspaces out."""
    return [
        (row, {phase.name: phase.allocated - workspace for phase in estimate.phases})
        for row, estimate, _, workspace in runs
    ]


def test_the_peak(phases):
    errors = [max(sizes.values()) / row["peak_bytes_512"] - 1 for row, sizes in phases]
    assert max(abs(error) for error in errors) < 0.005
    assert mean(abs(error) for error in errors) < 0.0005


@pytest.mark.parametrize("name", PHASES)
def test_every_phase(phases, name):
    for row, sizes in phases:
        estimated = max(sizes[part] for part in PHASES[name])
        assert estimated == pytest.approx(row["phase_peaks"][name], rel=0.005), row["point"]


def test_where_the_peak_is(phases):
    agreed = sum(max(sizes, key=sizes.get) in PHASES[row["peak_phase"]] for row, sizes in phases)
    assert agreed >= len(phases) - 2


def test_against_a_replay_of_the_allocator(runs):
    """Recorded allocations of two training steps, replayed through torch's rules (`sim_peak_reserved`)."""
    errors, below, above = [], 0, 0
    for row, estimate, overhead, workspace in runs:
        tiers, replayed = estimate.per_gpu, row["sim_peak_reserved"]
        errors.append((tiers.reserved - workspace) / replayed - 1)
        below += replayed < (tiers.low - overhead.low - workspace) * 0.999
        above += replayed > (tiers.high - overhead.high - workspace) * 1.001
    assert mean(abs(error) for error in errors) < 0.015
    assert abs(mean(errors)) < 0.005
    assert below == 0
    assert above <= 0.025 * len(errors)
