"""The files that configs name: found below the project's root, and nowhere else."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .read import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .document import Document

_held: Mapping[str, Document] | None = None


@contextmanager
def holding(files: Mapping[str, Document]) -> Iterator[None]:
    """Configs name these files by path, and none on disk, while it lasts. Not for use by several threads."""
    global _held
    before, _held = _held, files
    try:
        yield
    finally:
        _held = before


def on_disk() -> bool:
    """Whether files are those of the disk."""
    return _held is None


def open_referenced(reference: str, from_path: str, root: str) -> Document | None:
    """The file a config names, from its folder or any above it up to the project root, as commands are started from any
    of them; never outside the root, never absolute."""
    if _held is not None:
        return _held.get(os.path.normpath(reference))
    if os.path.isabs(reference) or "\0" in reference or len(reference) > 1024:
        return None
    folder = os.path.dirname(os.path.abspath(from_path))
    inside = [os.path.realpath(root) + os.sep, os.path.realpath(folder) + os.sep]
    for base in dict.fromkeys((*upward(folder, root), root)):
        path = os.path.join(base, reference)
        if os.path.isfile(path) and os.path.realpath(path).startswith(tuple(inside)):
            return read(shown_path(path), referenced=True)
    return None


def upward(folder: str, root: str) -> list[str]:
    """The folder and those above it, the nearest first, below the root; alone where it is not below."""
    if not os.path.realpath(folder).startswith(os.path.join(os.path.realpath(root), "")):
        return [folder]
    depth = os.path.relpath(os.path.realpath(folder), os.path.realpath(root)).count(os.sep) + 1
    return [os.path.normpath(os.path.join(folder, *[os.pardir] * above)) for above in range(depth)]


def up_to(folder: str, root: str) -> list[str]:
    """The same with the root itself, real paths."""
    folder, root = os.path.realpath(folder), os.path.realpath(root)
    if folder != root and not folder.startswith(os.path.join(root, "")):
        return [folder]
    found = [folder]
    while found[-1] != root:
        found.append(os.path.dirname(found[-1]))
    return found


def shown_path(path: str) -> str:
    """`path` relative to where the user stands if it lies below, else absolute."""
    return os.path.abspath(path).removeprefix(os.path.join(os.getcwd(), ""))
