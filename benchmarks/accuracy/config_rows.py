"""Config files read through gpulint's own formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpulint.launchers.reading import UnrecognisedError, open_config, open_document
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError
from gpulint.source.read import parse

from .case import Inexpressible

if TYPE_CHECKING:
    from pathlib import Path

    from gpulint.job.job import Job


def read_config(path: Path, gpu: str | None, gpus: int | None, versions: dict[str, str] | None = None) -> Job:
    """The Job of a file, on that hardware and with those packages."""
    settings = Settings(gpu=gpu, gpus=gpus, root=os.path.dirname(path), versions=versions or {})
    try:
        return open_config(str(path), settings).reading.job
    except (SourceError, UnrecognisedError) as error:
        raise Inexpressible(f"not read: {type(error).__name__} {error}") from None


def read_text(text: str, form: str, gpu: str | None, gpus: int | None, versions: dict[str, str] | None = None) -> Job:
    """The Job of a text in YAML of a named format."""
    from gpulint.formats.core.registry import find

    settings = Settings(gpu=gpu, gpus=gpus, versions=versions or {})
    try:
        document = parse(text, f"{form}.yaml", "yaml")
        return open_document(document, find(form), settings).reading.job
    except SourceError as error:
        raise Inexpressible(f"not read: {error}") from None
