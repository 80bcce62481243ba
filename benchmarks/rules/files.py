"""The files of a corpus, by the format of the jobs that stand in them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from gpulint.formats.core.format import NoJobError
from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError

from .mistake import about

if TYPE_CHECKING:
    from pathlib import Path

    from .mistake import Mistake


class File(NamedTuple):
    """A file of the corpus; format, kind and purpose (`mistake.about`) of the first job whose keys stand in it."""

    path: str
    format: str
    kind: str
    objective: tuple[str, str]
    root: str


def file_of(folder: str, path: str) -> File | None:
    """What a file holds; None where no job of it has its keys there."""
    file = os.path.join(folder, path)
    root = os.path.join(folder, path.split("/")[0])
    try:
        opened = open_jobs(recognise_file(file), Settings(root=root)).opened
    except (SourceError, UnrecognisedError, NoJobError):
        return None
    own = next((item.reading for item in opened if item.reading.config.path == file), None)
    return File(file, own.format, own.job.kind, about(own), root) if own is not None else None


def paths(folder: Path) -> list[str]:
    """The paths of the corpus, as its index has them."""
    return sorted(row["path"] for row in json.loads((folder / "INDEX.json").read_text(encoding="utf-8")))


def chosen(found: list[File], mistake: Mistake) -> list[File]:
    """The files to write a mistake into, in the order to try them: of the same format and kind of job, one for the same
    purpose, one for any, and so on, each evenly spread."""
    files = [file for file in found if file.format == mistake.format and file.kind == mistake.kind]
    alike = _shuffled([file for file in files if file.objective == mistake.objective])
    mixed = [file for pair in zip(alike, _shuffled(files), strict=False) for file in pair]
    return [*dict.fromkeys([*mixed, *alike, *_shuffled(files)])]


def _shuffled(files: list[File]) -> list[File]:
    """The files in an order that is even over all of them at every length: by the reversed bits of their numbers."""
    bits = max(1, len(files)).bit_length()
    order = sorted(range(len(files)), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))
    return [files[number] for number in order]
