"""One start of a program, as the modules of this folder look at it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.coercion import as_integer
from ...formats.core.format import Problem
from ...source.places import places_of
from ..commands.flags import read_flags
from ..shell.script import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Entry, Node, Span
    from ..commands.tasks import Tasks
    from ..commands.wrappers import Unwrapped
    from ..launch import Resources
    from ..shell.shell import Word

_LITERAL = re.compile(r"[\"']?(?:[ \t]*[:=]|[\"']?[ \t,\\\r\n]+(?:-[ \t]+)?)[ \t]*[\"']?(\d+)\b")


class Start(NamedTuple):
    """A program that a command starts, with what surrounds it."""

    program: Unwrapped
    environment: Mapping[str, Word]
    resources: Resources
    tasks: Tasks | None
    file: Document
    project: Project

    @property
    def options(self) -> Node:
        """The program's own options."""
        return read_flags(self.program.words, self.file).document.root

    @property
    def wrappers(self) -> frozenset[str]:
        """The names of what wraps the program."""
        return frozenset(name for name, _ in (*self.program.launchers, *self.program.options))

    @property
    def everywhere(self) -> bool:
        """Whether several nodes run the command, each by itself: as a task of srun, or because the launcher starts the
        script on every node (SkyPilot, dstack, an indexed Job).
        """
        if "srun" in self.wrappers:
            return self.tasks is not None and (self.tasks.nodes or 1) > 1 and (self.tasks.count or 1) > 1
        return bool(self.resources.told.get("each_node", (False,))[0]) and (self.resources.nodes or 1) > 1

    def launcher(self, *names: str) -> Iterator[tuple[str, Node]]:
        """The options of the launchers of these names."""
        for name, options in self.program.launchers:
            if name in names:
                yield name, options.root

    def problem(self, kind: str, key: str, span: Span, **values: str) -> Problem:
        """Something about the file of this start."""
        return Problem(kind, key, span, values, self.file.path)

    def at(self, word: Word) -> Span | None:
        """Where a variable's value stands; None where the launcher sets it."""
        return place(places_of(self.file.text), word.at) if word.at and word.at[0] >= 0 else None


def option(root: Node, *names: str) -> Entry | None:
    """The first of these options that is there, with dashes or underscores."""
    for name in names:
        found = root.entry(name) or root.entry(name.replace("_", "-")) or root.entry(name.replace("-", "_"))
        if found is not None:
            return found
    return None


def number(entry: Entry | None) -> int | None:
    """The whole number of an option; None without."""
    return as_integer(entry.value.value) if entry is not None and entry.value.is_scalar else None


def is_written(entry: Entry, file: Document) -> bool:
    """Whether a number stands behind the option itself, and no variable that the reader has filled in."""
    found = _LITERAL.match(file.text, entry.key.span.end)
    return found is not None and found[1] == str(entry.value.value)
