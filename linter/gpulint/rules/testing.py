"""Rule files held to their own examples: a team's as gpulint's own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..hardware.catalogue import UnknownGpu
from ..source.document import SourceError
from .examples import Outcome, run_example, selection_with
from .load import bundled, read_rule_file, refuse_taken, rule_paths, rules_folder
from .rule import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .load import RuleFile


class Tried(NamedTuple):
    """One example: where it stands, and what came of it, or why it could not be run."""

    line: int
    column: int
    outcome: Outcome | None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether it gave exactly what it states."""
        return self.outcome is not None and self.outcome.holds


class Tested(NamedTuple):
    """One rule file: the rule and its examples, or why it is none. `gaps` are kinds of examples that it lacks."""

    path: str
    file: RuleFile | None
    tried: list[Tried]
    gaps: tuple[str, ...] = ()
    error: RuleError | None = None

    @property
    def holds(self) -> bool:
        """Whether the rule and all its examples are in order."""
        return self.error is None and not self.gaps and all(item.holds for item in self.tried)


def tested_rules(paths: Iterable[str]) -> Iterator[Tested]:
    """Every rule file of the given files and folders, tested one by one; a broken one does not stop the others.

    Raises RuleError for a path that is not there.
    """
    own = rules_folder()
    taken = {word: rule.file for rule in bundled()[0] for word in (rule.id, rule.name)}
    for path in _files(paths):
        try:
            file = read_rule_file(path)
            if not os.path.realpath(path).startswith(os.path.join(os.path.realpath(own), "")):
                refuse_taken(file, taken, bundled()[1])
        except RuleError as error:
            yield Tested(path, None, [], error=error)
            continue
        yield Tested(path, file, [*_tried(file)], _gaps(file))


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            yield from rule_paths(path)
        elif os.path.exists(path):
            yield path
        else:
            raise RuleError(path, "no such rule file or directory")


def _tried(file: RuleFile) -> Iterator[Tried]:
    selection = selection_with(file.rule)
    nodes = file.document.root.get("examples")
    for example, node in zip(file.source["examples"], nodes.items() if nodes else (), strict=True):
        place = node.span.line, node.span.column
        try:
            yield Tried(*place, run_example(example, selection, file.rule.file))
        except (RuleError, SourceError) as error:
            yield Tried(*place, None, error.reason)
        except UnknownGpu as error:
            yield Tried(*place, None, str(error))


def _gaps(file: RuleFile) -> tuple[str, ...]:
    expected = [example["expect"] for example in file.source["examples"]]
    fires = any(text.partition(" at ")[0] == file.id for names in expected for text in names)
    silent = any(all(text.partition(" at ")[0] != file.id for text in names) for names in expected)
    return tuple(text for text, there in (("fires", fires), ("has no finding", silent)) if not there)
