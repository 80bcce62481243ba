"""The work that estimates have cost, counted in steps, so that a search can end at the same point on every machine.

A step is one request of the allocator's replay, about a microsecond of Python.
"""

from __future__ import annotations

NODE = 8
"""Steps that one operation of a tape counts: recording it, its storages and its backward function."""

_spent = [0]


def spend(steps: int) -> None:
    """Count steps."""
    _spent[0] += steps


def spent() -> int:
    """Steps of this process so far; a difference of two readings is what lies between them."""
    return _spent[0]
