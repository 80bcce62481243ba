"""The interval against the card."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate import PerGpu, capacity, verdict
from gpulint.hardware.gpu import Gpu

CARD = Gpu("t", "T", "NVIDIA", "Turing", 7.5, 1000, 900, False, False, False, False, False, (), "a test")


@pytest.mark.parametrize(
    ("low", "high", "bounded", "expected"),
    [
        (100, 900, True, "fits"),
        (100, 901, True, "tight"),
        (900, 1000, True, "tight"),
        (901, 1000, True, "exceeds"),
        (100, 200, False, "unknown"),
        (901, 1000, False, "exceeds"),
    ],
)
def test_verdict_by_the_interval(low, high, bounded, expected):
    needed = PerGpu(low, low, low, low, high)
    assert verdict(needed, CARD, bounded=bounded) == expected
    assert verdict(needed, None, bounded=bounded) == "unknown"


def test_capacity_is_the_cards():
    assert capacity(None) is None
    assert capacity(CARD).usable == 900
