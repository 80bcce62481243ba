"""Values as people read them."""

from __future__ import annotations

import pytest

from gpulint.job.sharding import Fsdp
from gpulint.words import word


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "-"),
        ("", "-"),
        ((), "-"),
        (["q_proj", "v_proj"], "q_proj, v_proj"),
        ({"vllm": "0.11", "torch": "2.9"}, "vllm 0.11, torch 2.9"),
        (0, "0"),
    ],
)
def test_values(value, shown):
    assert word(value) == shown


def test_a_part_of_a_job_names_what_it_sets():
    assert word(Fsdp(version=2)).startswith("version 2")
    assert "None" not in word(Fsdp(version=2))
