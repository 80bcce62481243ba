"""Ray Serve's command line: `serve run config.yaml` and `serve deploy config.yaml` start the applications of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.document import SourceError
from .generated_files import CONFIG_SUFFIXES

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ..launch import Started
    from .wrappers import Unwrapped

_STARTS = ("run", "deploy")


def served_file(program: Unwrapped, file: Document, project: Project) -> Started | None:
    """The models of the config that `serve` is given; None for other programs, and where the file is not here."""
    if program.head != "serve" or program.module or not program.words or program.words[0].text not in _STARTS:
        return None
    path = next((word.text for word in program.words[1:] if word.text.lower().endswith(CONFIG_SUFFIXES)), "")
    try:
        config = project.open(path, file.path) if path else None
    except SourceError:
        return None
    from ..cloud import ray_serve

    return ray_serve.launches(config, project) if config is not None and ray_serve.recognise(config) else None
