"""Reserved memory of a training process against a replay of the allocator."""

from __future__ import annotations

from statistics import mean

from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator import estimate_job, runtime
from gpulint.estimator.estimate import Phase
from gpulint.estimator.slack import Apart, apart, reserved
from gpulint.models.resolve import resolve
from gpulint.units import MIB

SIZES = st.integers(0, 1 << 40)


def test_kinds_that_never_share_blocks_add_up():
    phases = [
        Phase("load", {"weights": 100, "optimizer": 0, "buffers": 90}),
        Phase("loss", {"weights": 100, "optimizer": 40, "logits": 30, "activations": 10}),
        Phase("backward", {"weights": 100, "optimizer": 40, "gradients": 20, "activations": 25}),
        Phase("optimizer_step", {"weights": 100, "optimizer": 55, "gradients": 20}),
    ]
    assert apart(phases, 40) == (100 + 40, 15 + 30 + 25 + 20)


@given(SIZES, SIZES, SIZES)
def test_the_interval_holds_what_is_expected(static, transient, gap):
    allocated = max(0, static + transient - gap)
    one, many = (reserved(allocated, Apart(static, transient), streams=streams) for streams in (False, True))
    assert allocated <= one.low <= one.expected <= many.expected <= many.high
    assert one.low == many.low
    assert one.low - allocated < 2 * MIB


def test_against_a_replay_of_the_allocator(shared_data, oracle_rows):
    """Recorded allocations of two training steps, replayed through torch's rules (`sim_peak_reserved`)."""
    errors, below, above = [], 0, 0
    for row in shared_data("oracle"):
        point = row["point"]
        if point.get("mode") == "infer" or point.get("loop"):
            continue
        job = oracle_rows.job_of(row)
        overhead, workspace = runtime.process_overhead(None, job), runtime.allocated_workspace(job, None)
        tiers = estimate_job(job, resolve(row["config"]), None).per_gpu
        replayed = row["sim_peak_reserved"]
        errors.append((tiers.reserved - workspace) / replayed - 1)
        below += replayed < (tiers.low - overhead.low - workspace) * 0.999
        above += replayed > (tiers.high - overhead.high - workspace) * 1.001
    assert len(errors) == 221
    assert mean(abs(error) for error in errors) < 0.05
    assert abs(mean(errors)) < 0.02
    assert below == 0
    assert above <= 0.02 * len(errors)
