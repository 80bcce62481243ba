"""The work that estimates have cost, counted in steps, so that a search can end at the same point on every machine.

A step is one request of the allocator's replay, about a microsecond of Python.
"""

from __future__ import annotations

from .estimate import NotEstimable

NODE = 8
"""Steps that one operation of a tape counts: recording it, its storages and its backward function."""

PARTS = 1 << 16
"""Parts of a batch that are laid out one by one, pieces or sequences: about two seconds; a real batch has fewer."""

_spent = [0]


def spend(steps: int) -> None:
    """Count steps."""
    _spent[0] += steps


def spent() -> int:
    """Steps of this process so far; a difference of two readings is what lies between them."""
    return _spent[0]


def bounded(parts: int) -> None:
    """Raises NotEstimable for a batch whose loss is taken in more parts than PARTS."""
    if parts > PARTS:
        raise NotEstimable(f"the loss of one batch is taken in {parts:,} parts, which is more than is laid out")
