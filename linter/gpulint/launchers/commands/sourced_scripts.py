"""Shell scripts that a launcher's commands start or read: `bash train.sh 8`, `source env.sh`, `sbatch job.sbatch`.

They are read where they lie, inside the project, and never run. A script that another starts knows its arguments and
the variables that were exported; one that is sourced knows all, and what it sets counts for the commands behind it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..cloud import slurm
from ..launch import Launch, Resources, Started
from ..shell.script import Script
from ..shell.shell import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...formats.core.format import Project
    from ...source.document import Document
    from ..shell.shell import Command
    from .wrappers import Unwrapped

    Start = Callable[[Document, Resources, Mapping[str, str | Word], list[Word], "Trail"], Started]

MAX_SCRIPTS = 20
"""Scripts that are followed from one launcher file."""

SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".sl", ".slrm")
SOURCES = frozenset({"source", "."})


@dataclass(slots=True)
class Trail:
    """The scripts on the way to the one that is read; `opened` counts all that the launcher file led to."""

    paths: tuple[str, ...] = ()
    opened: list[str] = field(default_factory=list)

    def open(self, path: str, file: Document, project: Project) -> Document | None:
        """A shell script that a file names, if it lies in the project and is not on the way already."""
        from ...source.document import SourceError

        if len(self.opened) >= MAX_SCRIPTS or "$" in path or "{" in path:
            return None
        try:
            document = project.open(path, file.path)
        except SourceError:
            return None
        if document is None or document.syntax != "shell":
            return None
        real = os.path.realpath(document.path)
        if real in (*self.paths, os.path.realpath(file.path)):
            return None
        self.opened.append(real)
        return document

    def beyond(self, file: Document) -> Trail:
        """The trail of what `file` starts."""
        return Trail((*self.paths, os.path.realpath(file.path)), self.opened)


class _Script(NamedTuple):
    """A script that a command names, and its arguments."""

    path: Word
    arguments: tuple[Word, ...]


def follow(
    program: Unwrapped, command: Command, file: Document, project: Project, resources: Resources, trail: Trail,
    start: Start,
) -> Started | None:  # fmt: skip
    """What the script that a command names starts, with the places of that script; None where it names none."""
    script = _named(program)
    document = trail.open(script.path.text, file, project) if script is not None else None
    if document is None or script is None:
        return None
    seen = command.variables if program.head in SOURCES else command.environment
    known = {name: word.text for name, word in seen.items() if word.known}
    variables: dict[str, str | Word] = dict(known)
    over = next((slurm.given(options) for name, options in program.options if name == "sbatch"), None)
    if over is not None:
        resources = Resources()
    arguments = [_elsewhere(word) for word in script.arguments]
    variables |= {str(number): word for number, word in enumerate(arguments[:9], 1)}
    own = trail.beyond(file)

    def started(text: Document) -> Started:
        asked = resources.copy()
        set_ = slurm.read(text, asked, over) if over is not None else {}
        return start(text, asked, {**variables, **set_}, arguments, own)

    found = started(document)
    launches = [_from_here(launch, number, document, started) for number, launch in enumerate(found.launches)]
    return found._replace(launches=launches, files={**found.files, f"script {document.path}": document})


def sourced(file: Document, project: Project, trail: Trail) -> Callable[[str], Script | None]:
    """Reads the scripts that `source` names. Their words stand in no place of the file that reads them."""

    def read(path: str) -> Script | None:
        document = trail.open(path, file, project)
        return Script(document.text, (-1,) * len(document.text)) if document is not None else None

    return read


def _named(program: Unwrapped) -> _Script | None:
    if program.head in SOURCES and program.words:
        return _Script(program.words[0], program.words[1:])
    if program.script or program.head.endswith(SUFFIXES):
        return _Script(program.name, program.words)
    return None


def _elsewhere(word: Word) -> Word:
    """A word that stands in another file than the one that is read."""
    return word._replace(at=(-1,) * len(word.text))


def _from_here(launch: Launch, number: int, script: Document, started: Callable[[Document], Started]) -> Launch:
    """A launch of another script, told as this file's; its own flags are read again from another text of the script."""
    part = (
        launch.part if launch.part.startswith(_SCRIPT) else f"{_SCRIPT}{os.path.basename(script.path)}, {launch.part}"
    )
    if launch.config.path != script.path or launch.config.reread is not None:
        return launch._replace(part=part)

    def reread(text: str) -> Document | None:
        from ...source.read import parse

        launches = started(parse(text, script.path, script.syntax)).launches
        return launches[number].config if number < len(launches) else None

    return launch._replace(part=part, config=launch.config._replace(reread=reread, comments=script.comments))


_SCRIPT = "script "
