"""Field paths of a Job."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

from gpulint.job import Job, field_paths


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
