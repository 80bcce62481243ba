"""A published figure beside the Job that led to it, or the reason why no Job says it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.hardware.catalogue import UnknownGpu, find
from gpulint.job.job import Job
from gpulint.models.model import UnknownModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpulint.hardware.gpu import Gpu

GIB = 1 << 30
SHARED = Path(__file__).resolve().parents[3] / "shared"

Row = dict[str, Any]


class Case(NamedTuple):
    """One figure to compare.

    figure     which number of the Estimate is meant (a key of `figures.FIGURES`)
    measured   bytes, or tokens for `kv_tokens`; None where only the outcome is known
    outcome    `fits` or `oom` on `job.hardware`, None where the row names no GPU
    strict     whether an outcome's row tells enough to hold the verdict to it
    unknown    facts that move the figure and that the source does not tell, in words
    counted    whether the source says what was counted; if not, it may be what torch allocated, reserved or nvidia-smi
    rounded    half a unit of the last digit that the source prints, in bytes
    other      the same figure in the other unit that the source may mean, in bytes
    each_step  whether the counter begins anew at each step and the source does not say whose figure it gives
    """

    id: str
    group: str
    job: Job
    figure: str
    measured: float | None
    outcome: str | None = None
    strict: bool = True
    confidence: str = "high"
    unknown: str = ""
    counted: bool = True
    rounded: float = 0.0
    other: float | None = None
    each_step: bool = False


class Excluded(NamedTuple):
    """A row that is not scored."""

    id: str
    group: str
    reason: str


class Inexpressible(Exception):  # noqa: N818
    """A row that no Job can say; the message is the reason."""


_NOT_MEMORY = re.compile(r"\s*\([^)]*\)|\s*HBM2e.*$")


def gpu_of(name: str | None) -> str | None:
    """The catalogue's name of a GPU as a row names it; None where the row names none or only a class of cards."""
    if not name or "not stated" in name or name.endswith("class"):
        return None
    try:
        found: str = find(_NOT_MEMORY.sub("", name)).name
    except UnknownGpu:
        return None
    return found


def gpu(job: Job) -> Gpu | None:
    """The catalogue entry of a job's GPU."""
    return find(job.hardware.gpu) if job.hardware.gpu else None


def load(name: str) -> list[Row]:
    """A table of `../shared/data`."""
    rows: list[Row] = json.loads((SHARED / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return rows


FAILED = "THE ROW'S READER FAILED"
"""What stands before a reason that is a defect of the benchmark: a row in words that no reader here has met."""


def read_rows(
    rows: list[Row],
    group: Callable[[Row], str],
    readers: dict[str, Callable[[Row], Case | list[Case]]],
    other: Callable[[Row], Case] | None = None,
) -> tuple[list[Case], list[Excluded]]:
    """Every row as a Case, or the reason why not; `other` reads the rows of groups that no reader is for."""
    cases: list[Case] = []
    excluded: list[Excluded] = []
    for row in rows:
        name = group(row)
        try:
            found = (readers[name] if other is None or name in readers else other)(row)
        except (Inexpressible, UnknownModel) as error:
            excluded.append(Excluded(row["id"], name, str(error)))
            continue
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as crash:
            excluded.append(Excluded(row["id"], name, f"{FAILED}: {type(crash).__name__} {crash}"))
            continue
        cases.extend(found if isinstance(found, list) else [found])
    return cases, excluded


def measured_bytes(row: Row) -> float | None:
    """The published value in bytes, None for a row without one."""
    if row["measured_value"] is None:
        return None
    if row["unit"] == "bytes":
        return float(row["measured_value"])
    return float(row["measured_gib"]) * GIB


def hardware(job: Job, row: Row) -> Job:
    """Set the GPU and their number from a row."""
    job.hardware.gpu = gpu_of(row["gpu"])
    job.hardware.gpus = row["n_gpus"] or 1
    return job


def versions(text: str | None) -> dict[str, str]:
    """'torch 2.4.1, transformers 4.45.2, lit-gpt commit 8641822' -> {torch: 2.4.1, transformers: 4.45.2}."""
    names = "torch|transformers|peft|trl|accelerate|bitsandbytes|torchao|vllm|deepspeed|flash-attn"
    found = re.findall(rf"\b({names})[ =]+v?(\d[\w.+]*)", text or "")
    return {name: version.split("+")[0] for name, version in found}
