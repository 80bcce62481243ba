"""Which files of a repository name which others: by their names, from whatever folder a command is started in."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..source.read import SUFFIXES
from ..source.referenced import up_to

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SIZE = 64 * 1024
"""Bytes of a file that may name others; launchers and configs are small, and data is not."""

MAX_FILES = 20_000
"""Files of a repository that are looked at."""

LEFT_OUT = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
"""Folders that hold nobody's configs, besides those whose name begins with a dot."""

_WORD = re.compile(rb"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")


def naming(path: str, root: str) -> list[str]:
    """The files below the root that hold the name of a file, or of a YAML its stem as Hydra and torchtune write it."""
    own = os.path.realpath(path)
    return [other for other in files_below(root) if other != own and names(other, own)]


def naming_above(path: str, root: str) -> Iterator[list[str]]:
    """The same among the files of its folder and of each folder above it, up to the root, the nearest first."""
    own = os.path.realpath(path)
    for folder in up_to(os.path.dirname(own), root):
        found = [other for other in files_of(folder) if other != own and names(other, own)]
        if found:
            yield found


def names(path: str, other: str) -> bool:
    """Whether a file holds the name of another one."""
    stem, suffix = os.path.splitext(os.path.basename(other))
    words = _words_of(path)
    return (stem + suffix).encode() in words or (suffix in (".yaml", ".yml") and stem.encode() in words)


def files_below(root: str) -> list[str]:
    """The files of a repository that may name others, in a steady order."""
    found: list[str] = []
    for folder, folders, _ in os.walk(os.path.realpath(root)):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT)
        found += files_of(folder)
        if len(found) >= MAX_FILES:
            break
    return found[:MAX_FILES]


def files_of(folder: str) -> list[str]:
    """Those of one folder."""
    try:
        return _files_of(folder, os.stat(folder).st_mtime_ns)
    except OSError:
        return []


@lru_cache(maxsize=16384)
def _files_of(folder: str, _changed: int) -> list[str]:
    with os.scandir(folder) as entries:
        kept = (entry for entry in entries if os.path.splitext(entry.name)[1].lower() in SUFFIXES)
        return sorted(entry.path for entry in kept if entry.is_file())


def _words_of(path: str) -> frozenset[bytes]:
    """The words of a file, as parts of paths; none of one that is too large or cannot be read."""
    try:
        about = os.stat(path)
    except OSError:
        return frozenset()
    return _words(path, about.st_mtime_ns, about.st_size) if about.st_size <= MAX_SIZE else frozenset()


@lru_cache(maxsize=MAX_FILES)
def _words(path: str, _changed: int, _size: int) -> frozenset[bytes]:
    """The times of the last change tell apart what was read before."""
    try:
        with open(path, "rb") as file:
            return frozenset(word.rstrip(b".") for word in _WORD.findall(file.read(MAX_SIZE)))
    except OSError:
        return frozenset()
