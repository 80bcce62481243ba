"""AutoAWQ's table: an inference engine of its own, with fused modules over 4-bit weights."""

from __future__ import annotations

from .case import Case, Inexpressible, Row


def case(_: Row) -> Case:
    """Always refused: its attention allocates the cache whole and keeps scores that no engine of a Job has."""
    raise Inexpressible("AutoAWQ's fused modules are an engine that gpulint does not know")
