"""The launcher file that starts a config, looked for above the config when only the config is checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..repository.references import naming_above
from ..source.document import SourceError

if TYPE_CHECKING:
    from ..formats.core.format import Project
    from ..source.document import Document
    from .launch import Launch

MAX_FILES = 60
"""Files that hold the config's name and are read, of one folder."""


def starting(document: Document, form: str, project: Project) -> Launch | None:
    """The one launch that starts `document`, found in its folder or a folder above it, up to the project's root.

    The nearest folder with such a launcher counts. Where its launchers start the config on different hardware, none
    counts: which of them is meant is not known.
    """
    own = os.path.realpath(document.path)
    for paths in naming_above(own, project.root):
        found = [
            launch
            for path in paths[:MAX_FILES]
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
