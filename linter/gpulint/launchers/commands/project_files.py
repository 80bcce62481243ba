"""Files of the project that a command names behind a variable which only its run knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...source.document import SourceError
from .generated_files import CONFIG_SUFFIXES

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ..shell.shell import Command, Word

_BEHIND = re.compile(
    r"(?P<option>-{0,2}[\w.-]+=)?\$(?:\{(?P<braced>\w+)\}|(?P<bare>[A-Za-z_]\w*))/+(?P<tail>[\w./+@-]+)"
)
_OF_THE_PROJECT = re.compile(r"root|dir|here|pwd|base|repo|proj|work|home|path", re.IGNORECASE)
"""What a variable is called that holds the project or a folder of it; others may hold a checkpoint or an output."""


def with_project_files(command: Command, file: Document, project: Project) -> Command:
    """The command with `$ROOT/configs/train.yaml` as `configs/train.yaml`, where the project has that file.

    A name without a folder counts only behind a variable that is called after one, as any folder may hold such a file.
    """
    if all(word.known for word in command.words):
        return command
    return command._replace(words=tuple(_placed(word, file, project) for word in command.words))


def _placed(word: Word, file: Document, project: Project) -> Word:
    match = _BEHIND.fullmatch(word.text) if not word.known and len(word.at) == len(word.text) else None
    if match is None or not match["tail"].lower().endswith(CONFIG_SUFFIXES):
        return word
    if "/" not in match["tail"] and not _OF_THE_PROJECT.search(match["braced"] or match["bare"]):
        return word
    option, start = match["option"] or "", match.start("tail")
    try:
        if project.open(word.text[len(option) :], file.path) is not None:
            return word  # the script wrote it
        if project.open(match["tail"], file.path) is None:
            return word
    except SourceError:
        return word
    return word._replace(
        text=option + match["tail"], at=word.at[: len(option)] + word.at[start:], known=True, may_be=()
    )
