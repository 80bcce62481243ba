"""How many parameters published models have whose architecture nobody describes here: a floor, no estimate."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from ..source.tables import read_table

_GENERIC = re.compile(r"(model|checkpoint(-\d+)?|final|latest|merged|hf|snapshots|main|[0-9a-f]{32,40}|\d+(\.\d+)?b)")
"""Names of folders that say nothing of themselves: their parent's names the model."""

_DEPTH = 3


class Diffusion(NamedTuple):
    """Parameters of a diffusion model: of the part that its trainers train, and of what they load besides."""

    trained: int
    loaded: int


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "sizes.json")


def size_of(reference: str) -> int | None:
    """The parameters of a published model by the last name of its repository or folder, rounded down."""
    millions = _table()["models"].get(_leaf(reference))
    return None if millions is None else int(millions) * 10**6


def diffusion_of(reference: str) -> Diffusion | None:
    """The parameters of a published diffusion model."""
    row = _table()["diffusion"].get(_leaf(reference))
    return None if row is None else Diffusion(row["trained"] * 10**6, row["loaded"] * 10**6)


def meant_by(path: str) -> list[str]:
    """The names that a folder of a generic name may stand for: `/data/llama/7B` for `llama-7B`, `/x/Yi-6B/model` for
    `Yi-6B`. A guess."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    found: list[str] = []
    for _ in range(_DEPTH):
        if len(parts) < 2 or not _GENERIC.fullmatch(parts[-1].lower()):
            break
        found += [parts[-2], f"{parts[-2]}-{parts[-1]}"]
        parts.pop()
    return found


def _leaf(reference: str) -> str:
    return reference.rstrip("/").rpartition("/")[2].lower()
