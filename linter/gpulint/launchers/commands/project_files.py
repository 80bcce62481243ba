"""Files of the project that a command names behind a variable which only its run knows."""

from __future__ import annotations

import os
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
    An absolute path, which is one of another machine, means the project's file of the same folders.
    """
    if all(word.known and "/" not in word.text for word in command.words):
        return command
    return command._replace(words=tuple(_placed(word, file, project) for word in command.words))


def _placed(word: Word, file: Document, project: Project) -> Word:
    if word.known:
        return _absolute(word, file, project)
    match = _BEHIND.fullmatch(word.text) if len(word.at) == len(word.text) else None
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


def _absolute(word: Word, file: Document, project: Project) -> Word:
    """`/workspace/project/configs/train.yaml` as `configs/train.yaml`, where the project has that."""
    start = word.text.rfind("=") + 1
    path = word.text[start:]
    if not path.startswith("/") or len(word.at) != len(word.text) or not path.lower().endswith(CONFIG_SUFFIXES):
        return word
    parts = path.split("/")
    root = os.path.basename(project.root)
    tails = ["/".join(parts[here:]) for here in range(2, len(parts) - 1)]
    tails += parts[-1:] if len(parts) > 2 and parts[-2] == root else []
    try:
        if project.open(path, file.path) is not None:
            return word  # mounted, or written by the script
        tail = next((tail for tail in tails if project.open(tail, file.path) is not None), None)
    except SourceError:
        return word
    if tail is None:
        return word
    kept = len(word.text) - len(tail)
    return word._replace(text=word.text[:start] + tail, at=word.at[:start] + word.at[kept:])
