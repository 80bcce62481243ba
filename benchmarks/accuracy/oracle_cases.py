"""The oracle's points as cases: what the libraries themselves allocate, replayed without a GPU."""

from __future__ import annotations

from typing import Any

from . import oracle_rows
from .case import Case

WORKSPACE = int(8.125 * (1 << 20))
"""A cuBLAS workspace, which the replay has not: two in training, one in inference (CublasHandlePool.cpp)."""


def cases() -> list[Case]:
    """`peak_bytes` of every point, and the simulated allocator's reserved bytes for training."""
    found: list[Case] = []
    for number, row in enumerate(oracle_rows.rows()):
        job = oracle_rows.job_of(row)
        handles = 1 if job.kind == "inference" else 2
        label = name(number, row["point"])
        measured = float(row["peak_bytes_512"] + handles * WORKSPACE)
        found.append(Case(label, "oracle", job, "allocated", measured))
        if row.get("sim_peak_reserved") and job.kind == "training":
            held = float(row["sim_peak_reserved"] + handles * WORKSPACE)
            found.append(Case(f"{label}-reserved", "oracle", job, "reserved", held))
    return found


def name(number: int, point: dict[str, Any]) -> str:
    """A readable name of a point."""
    words = [str(value) for value in point.values() if value not in (None, False, True, "")]
    return f"oracle-{number:03d}-" + "-".join(words[:7])
