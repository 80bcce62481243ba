"""Numbers at both sides of what upstream takes."""

from __future__ import annotations

import pytest

from gpulint.formats.core.keys import key_problems
from gpulint.source.read import parse


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("max-num-seqs", "1", False),
        ("max-num-seqs", "0", True),
        ("max-model-len", "-1", False),
        ("max-model-len", "-2", True),
        ("gpu-memory-utilization", "1.0", False),
        ("gpu-memory-utilization", "1.01", True),
        ("gpu-memory-utilization", "0", True),
        ("gpu-memory-utilization", ".inf", True),
        ("gpu-memory-utilization", ".nan", True),
    ],
)
def test_a_number_outside_of_its_bounds_is_told(key, value, refused):
    problems = key_problems(parse(f"model: m\n{key}: {value}\n", "a.yaml", "yaml"), "vllm")
    assert [item.kind for item in problems] == (["out-of-bounds"] if refused else [])
