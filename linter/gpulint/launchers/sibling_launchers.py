"""The launcher file that starts a config, looked for beside the config when only the config is checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..source.document import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..formats.core.format import Project
    from ..source.document import Document
    from .launch import Launch

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml")
MAX_FOLDERS = 6
MAX_FILES = 60
"""Files of launchers' kinds that are looked at in one folder."""

MAX_SIZE = 64 * 1024


def starting(document: Document, form: str, project: Project) -> Launch | None:
    """The one launch that starts `document`, found in its folder or a folder above it, up to the project's root.

    The nearest folder with such a launcher counts. Where its launchers start the config on different hardware, none
    counts: which of them is meant is not known.
    """
    own = os.path.realpath(document.path)
    for folder in _folders(own, project.root):
        found = [
            launch
            for path in _candidates(folder, own)
            for launch in _launches(path, project)
            if launch.format == form and launch.file is not None and os.path.realpath(launch.file.path) == own
        ]
        if found:
            first = found[0]
            return first if all(_hardware(launch) == _hardware(first) for launch in found) else None
    return None


def _hardware(launch: Launch) -> tuple[object, ...]:
    asked = launch.resources
    return asked.gpu, asked.processes or asked.gpus, asked.nodes


def _folders(path: str, root: str) -> Iterator[str]:
    """The folder of a file and those above it, up to the root; the folder alone where it lies outside."""
    folder, top = os.path.dirname(path), os.path.realpath(root)
    for _ in range(MAX_FOLDERS):
        yield folder
        if folder == top or not folder.startswith(top + os.sep):
            return
        folder = os.path.dirname(folder)


def _candidates(folder: str, own: str) -> Iterator[str]:
    """The files of a folder that may be a launcher of `own`: small ones that hold its name."""
    name = os.path.basename(own).encode()
    try:
        listed = sorted(entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(SUFFIXES))
    except OSError:
        return
    for path in listed[:MAX_FILES]:
        try:
            if not os.path.isfile(path) or os.path.getsize(path) > MAX_SIZE or os.path.realpath(path) == own:
                continue
            with open(path, "rb") as file:
                if name in file.read(MAX_SIZE):
                    yield path
        except OSError:
            continue


def _launches(path: str, project: Project) -> list[Launch]:
    from ..source.read import read
    from ..source.referenced import shown_path
    from .registry import recognise

    try:
        document = read(shown_path(path))
        launcher = recognise(document)
        return launcher.launches(document, project).launches if launcher is not None else []
    except SourceError:
        return []
