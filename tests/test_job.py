"""Field paths of a Job, and what follows from its degrees of parallelism."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from gpulint.job.job import Hardware, Job, Parallelism, field_paths


def declared(cls: type, prefix: str = ""):
    hints = get_type_hints(cls)
    for item in fields(cls):
        if item.name == "origins":
            continue
        yield prefix + item.name
        hint = hints[item.name]
        for part in (hint, *get_args(hint)):
            if is_dataclass(part):
                yield from declared(part, f"{prefix}{item.name}.")


def test_the_paths_reach_into_every_part():
    assert list(field_paths()) == list(declared(Job))
    assert "allocator.expandable_segments" in list(field_paths())


@pytest.mark.parametrize(("data", "ranks"), [(None, 8), (4, 8), (2, 4)])
def test_ranks_that_share_a_sequence_divide_states_with_the_others(data, ranks):
    """16 GPUs, two to a tensor and two to a sequence: what is stated counts replicas, as what the GPUs leave does."""
    job = Job(parallelism=Parallelism(data=data, tensor=2, context=2), hardware=Hardware(gpus=16))
    assert job.data_parallel == ranks
