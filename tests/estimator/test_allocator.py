"""The caching allocator: its rounding, and the interval around what it reserves."""

from __future__ import annotations

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.allocator import block_size, reserved, segment_size
from gpulint.units import MIB

SIZES = st.integers(0, 1 << 40)


@pytest.mark.parametrize(
    ("request_bytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 11 * MIB + 512, 12 * MIB),
    ],
)
def test_requests_are_rounded_as_torch_rounds_them(request_bytes, block, segment):
    assert block_size(request_bytes) == block
    assert segment_size(request_bytes) == segment


def test_an_empty_tensor_takes_no_block():
    assert block_size(0) == 0


@given(SIZES, SIZES, SIZES)
def test_the_interval_holds_the_expected_value(allocated, transient, recycled):
    size = reserved(allocated, transient, recycled)
    assert allocated <= size.low <= size.expected <= size.high
    assert size.low - allocated < 2 * MIB
    assert size.expected <= -(-(allocated + min(transient, recycled)) // (2 * MIB)) * 2 * MIB


def test_weights_alone_leave_no_slack():
    assert reserved(40 * MIB) == (40 * MIB, 40 * MIB, 42 * MIB)


def test_the_interval_covers_a_replay_of_the_allocator(shared_data):
    """`sim_peak_reserved`: recorded allocations of real training and inference runs, replayed through the rules."""
    runs, covered, errors = shared_data("oracle"), 0, []
    for run in runs:
        point, config = run["point"], run["config"]
        allocated, replayed = run["sim_peak_allocated"], run["sim_peak_reserved"]
        static = run.get("static_bytes") or run["params_bytes"]
        hidden = config.get("hidden_size") or config["n_embd"]
        tokens = point["batch"] * point["seq"]
        recycled = 4 * tokens * config["vocab_size"] + 4 * config["vocab_size"] * hidden
        if point.get("mode") == "infer":
            recycled = 2 * tokens * config.get("intermediate_size", 4 * hidden)
        size = reserved(allocated, allocated - static, recycled)
        assert size.low <= replayed, point
        covered += replayed <= size.high
        errors.append(size.expected / replayed - 1)
    assert len(runs) >= 249
    assert covered >= len(runs) - 1
    assert mean(abs(error) for error in errors) < 0.05
    assert abs(mean(errors)) < 0.02
