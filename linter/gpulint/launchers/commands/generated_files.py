"""Configs that a script writes itself before it starts what reads them: with a here-document, or from a template."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from ...source.document import SourceError
from ..embedded import held
from ..shell.script import Script

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...formats.core.format import Project
    from ...source.document import Document
    from ..shell.shell import Command, Word


class MadeError(SourceError):
    """A file that the script makes when it runs, so that nobody can read it before."""


CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
"""How the names of config files end."""

MAX_WRITTEN = 200
"""Files of one script that are kept apart."""


def with_written(command: Command, file: Document, project: Project) -> Project:
    """A project that also opens the configs a command writes: `cat > FILE <<EOF`, `envsubst < TEMPLATE > FILE`,
    `cp A FILE`. What any other command writes, adds to a file or changes in one that was made raises MadeError.
    """
    before = project.open if isinstance(project.open, _Opening) else _Opening(file, project, {})
    target = _target(command) or _changed(command, before.made)
    if not target.lower().endswith(CONFIG_SUFFIXES) or len(before.made) >= MAX_WRITTEN:
        return project
    made = {**before.made, posixpath.normpath(target): command}
    return project._replace(open=_Opening(file, before.project, made))


class _Opening:
    """Opens what commands wrote, and what was there before."""

    def __init__(self, file: Document, project: Project, made: Mapping[str, Command]) -> None:
        self.file = file
        self.project = project
        self.made = made

    def __call__(self, reference: str, from_path: str) -> Document | None:
        command = self.made.get(posixpath.normpath(reference))
        if command is None:
            return self.project.open(reference, from_path)
        source = _source(command)
        if command.input is not None and not source and _whole(command) and not command.appends:
            return held(self.file, Script(command.input.text, _places(command.input)))
        found = self.project.open(source, from_path) if source else None
        found = found or self.project.open(reference, from_path)
        if found is None:
            raise MadeError(reference, "created by the script at run time")
        return found


def _named(command: Command) -> list[str]:
    """The words of a command that are no options, without `sudo`."""
    words = [word.text for word in command.words if not word.text.startswith("-")]
    return words[1:] if words[:1] == ["sudo"] else words


def _whole(command: Command) -> bool:
    """Whether it writes its input as it stands."""
    return _named(command)[:1] in (["cat"], ["tee"])


def _target(command: Command) -> str:
    """The file that a command writes; empty where it writes none."""
    words = _named(command)
    if words[:1] == ["tee"] and len(words) == 2:
        return words[1]
    if words[:1] in (["cp"], ["mv"]) and len(words) == 3:
        return words[2]
    return command.output


def _changed(command: Command, made: Mapping[str, Command]) -> str:
    """The file among those `made` that it changes in place (`sed -i`, `yq -i`, `perl -pi`); empty for none."""
    words = [word.text for word in command.words]
    if words[0] not in ("sed", "yq", "perl") or not any(
        re.match(r"-(?:[a-z]*i|-in-?place)", word) for word in words[1:]
    ):
        return ""
    return words[-1] if posixpath.normpath(words[-1]) in made else ""


def _source(command: Command) -> str:
    """The file that it copies; empty where it copies none."""
    words = _named(command)
    if command.appends:
        return ""
    if words[:1] == ["envsubst"]:
        return command.reads
    if words[:1] in (["cp"], ["mv"], ["cat"]) and len(words) == (2 if words[0] == "cat" else 3):
        return words[1]
    return ""


def _places(text: Word) -> list[int]:
    """Where each character stands; what a variable filled in stands where the text before it does."""
    places: list[int] = []
    last = next((place for place in text.at if place >= 0), 0)
    for place in text.at:
        last = place if place >= 0 else last
        places.append(last)
    return places
