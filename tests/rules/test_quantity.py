from __future__ import annotations

import pytest

from gpulint.rules.facts.vocabulary import unit_of_fact
from gpulint.rules.quantity import UnitError, text_of, unit_of
from gpulint.rules.syntax import parse


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("estimate.peak", "bytes"),
        ("1.1 * gpu.usable", "bytes"),
        ("estimate.peak / gpu.usable", ""),
        ("estimate.peak / gpus", "bytes"),
        ("max(estimate.peak, 80 * GiB)", "bytes"),
        ("estimate.peak if gpus > 1 else estimate.low", "bytes"),
        ("estimate.peak > gpu.usable", ""),
        ("default(inference.kv_cache_memory_bytes, 0)", "bytes"),
        ("peak_if('packing', false)", "bytes"),
        ("model.parameters", "parameters"),
    ],
)
def test_units_follow_the_arithmetic(text, unit):
    assert unit_of(parse(text), unit_of_fact) == unit


@pytest.mark.parametrize(
    "text", ["estimate.peak > 80", "gpu.usable + 1", "estimate.peak == gpus", "max(gpu.usable, 3)"]
)
def test_bytes_never_meet_plain_numbers(text):
    with pytest.raises(UnitError, match="80 \\* GiB"):
        unit_of(parse(text), unit_of_fact)


def test_zero_needs_no_unit():
    assert unit_of(parse("estimate.peak > 0"), unit_of_fact) == ""


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (64212385792, "bytes", "59.8 GiB"),
        (8030261248, "parameters", "8.03 B"),
        (131072, "tokens", "131,072"),
        (4, "", "4"),
        (0.92, "", "0.92"),
        (90.00000000000001, "", "90"),
        (8.0, "capability", "8.0"),
        (10.3, "capability", "10.3"),
        (True, "", "true"),
        (None, "", "null"),
        (["q", "v"], "", "q, v"),
        ("x" * 200, "", "x" * 159 + "…"),
        ("x" * 200 + " is unknown; did you mean y?", "", "x" * 200 + " is unknown; did you mean y?"),
        ("a; " * 200, "", "a; " * 133 + "…"),
    ],
)
def test_texts(value, unit, text):
    assert text_of(value, unit) == text
