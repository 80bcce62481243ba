"""The command that a controller puts together from a custom resource: what the manifest says, and what it adds.

Words of the manifest keep their places, so that findings and edits reach them. Words that the controller adds stand at
the place that led to them; `implied` says where their values come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..commands.jobs import jobs_of_commands
from ..shell.shell import Command, Word
from .container import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Resources, Started


class Assembly:
    """A command being put together; `at` is the node that stands for what no word of the file says."""

    def __init__(self, file: Document, at: Node, program: str, variables: Mapping[str, Word] | None = None) -> None:
        self.file = file
        self.variables = dict(variables or {})
        self.implied: dict[str, Origin] = {}
        self._at = range(at.span.start, max(at.span.start + 1, at.span.end if at.is_scalar else 0))
        self._words = [self._added(text) for text in program.split()]

    def add(self, flag: str, value: object, note: str, kind: str = "default") -> None:
        """A flag that the controller adds; a tuple is several values."""
        values = value if isinstance(value, tuple) else (value,)
        self._words += [self._added(f"--{flag}"), *(self._added(str(each)) for each in values)]
        self.implied[flag] = Origin(kind, note)

    def switch(self, flag: str) -> None:
        """A flag without a value that something in the manifest turns on."""
        self._words.append(self._added(f"--{flag}"))

    def say(self, flag: str, node: Node | None, skip: int = 0) -> None:
        """A flag whose value is a scalar of the manifest, from the character `skip` on."""
        if node is None or not node.is_scalar or node.value is None:
            return
        word = written(self.file, node, self.variables)
        self._words += [self._added(f"--{flag}"), word._replace(text=word.text[skip:], at=word.at[skip:])]

    def words(self, nodes: Iterable[Node]) -> None:
        """Words as a list of the manifest gives them."""
        self._words += [written(self.file, node, self.variables) for node in nodes]

    def take(self, words: Iterable[Word]) -> None:
        """Words that have been read."""
        self._words += words

    def jobs(self, project: Project, resources: Resources, part: str, versions: Mapping[str, str]) -> Started:
        """The jobs of the whole command, each with what is implied."""
        command = Command(tuple(word for word in self._words if word.text), self.variables)
        started = jobs_of_commands([command], self.file, project, resources, part, versions)
        return started.each(implied={flag.replace("_", "-"): origin for flag, origin in self.implied.items()})

    def _added(self, text: str) -> Word:
        """A word that stands for the whole of the node; what is longer than that ends at its last character."""
        return Word(text, tuple(self._at[min(here, len(self._at) - 1)] for here in range(len(text))))
