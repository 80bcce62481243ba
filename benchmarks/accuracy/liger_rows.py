"""Liger's kernel benchmarks: one operation with its inputs, not a model in training."""

from __future__ import annotations

from .case import Case, Inexpressible, Row


def case(row: Row) -> Case:
    """Always refused: a Job is a whole run."""
    kernel = (row["model_arch"] or {}).get("kernel", "kernel")
    raise Inexpressible(f"a kernel alone ({kernel}): a Job is the run of a whole model")
