"""The smallest change of a file."""

from __future__ import annotations

from dataclasses import dataclass

from ...declared import declared


@dataclass(slots=True, frozen=True)
class Edit:
    """Replace the characters `start`..`end` of `path` by `text`; `start == end` inserts."""

    path: str = declared("Path of the file.")
    start: int = declared("First character that is replaced, from 0.", unit="characters", least=0)
    end: int = declared("Character after the last one that is replaced.", unit="characters", least=0)
    text: str = declared("What replaces them.")
