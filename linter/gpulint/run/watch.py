"""Waiting for files to change."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from .walk import find_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..settings.layers import Layers
    from ..settings.settings import Settings

INTERVAL = 0.5
"""Seconds between two looks."""


def changes(paths: Iterable[str], settings: Settings | Layers, referenced: set[str]) -> Iterator[None]:
    """Yields whenever a checked file, or one of `referenced` (which may grow), appears, changes or goes."""
    paths = list(paths)
    before = _stamps(paths, settings, referenced)
    while True:
        time.sleep(INTERVAL)
        now = _stamps(paths, settings, referenced)
        if now != before:
            before = now
            yield


def _stamps(paths: list[str], settings: Settings | Layers, referenced: set[str]) -> dict[str, int]:
    named = [found.path for found in find_files(paths, settings)]
    stamps = {}
    for path in (*named, *referenced):
        try:
            stamps[path] = os.stat(path).st_mtime_ns
        except OSError:
            stamps[path] = 0
    return stamps
