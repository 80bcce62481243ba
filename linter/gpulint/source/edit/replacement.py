"""The smallest change of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Edit:
    """Replace the characters `start`..`end` of `path` by `text`; `start == end` inserts."""

    path: str
    start: int
    end: int
    text: str
