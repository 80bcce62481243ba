"""Which rules hold for a reading, and for which of its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..formats.core.format import Problem
from ..upstream.key_releases.table import releases
from ..upstream.packages import package_of
from .expression import fires
from .facts import fact_modules  # noqa: F401  (they register their facts)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..formats.core.format import Reading
    from .facts.facts import Facts
    from .rule import Rule, Selection

_MEMORY = ("estimate.", "peak.")


class Fired(NamedTuple):
    """A rule that holds, the problem it holds for, and the facts its condition asked for."""

    rule: Rule
    item: Problem | None
    reads: frozenset[str]

    @property
    def about_memory(self) -> bool:
        """Whether the condition rests on the estimate."""
        return any(path.startswith(_MEMORY) for path in self.reads)


def evaluate_rules(facts: Facts, selection: Selection) -> Iterator[Fired]:
    """Every rule that holds; of a group only the first. The fact `item` is left unset."""
    taken: set[str] = set()
    running = list(may_run(facts.job.versions, facts.reading.problems))
    for rule in selection.rules:
        if not rule.applies(facts.job.kind, facts.reading.format) or (rule.group and rule.group in taken):
            continue
        items: list[Problem | None] = [*problems(facts.reading, rule.each)] if rule.each else [None]
        for variant in rule.variants(facts.reading.format, running):
            for item in items:
                facts.item = item
                facts.reads = set()
                if fires(variant.when, facts):
                    if rule.group:
                        taken.add(rule.group)
                    yield Fired(variant, item, frozenset(facts.reads))
    facts.item = None


def may_run(versions: Mapping[str, str], found: Iterable[Problem]) -> Iterator[Mapping[str, str]]:
    """The releases that may run: those known and, beside a key that the newest dropped, the first that was read.

    Where nobody states a release, such a key says that the file was written for an earlier one, no matter how early.
    """
    yield versions
    for problem in found:
        tool, _, until = problem.values.get("until", "").rpartition(" ")
        package = package_of(tool) if until and problem.values.get("stated") != "yes" else None
        if package is not None and (read := releases(package)):
            yield {**versions, package: read[0]}


def problems(reading: Reading, kind: str) -> Iterator[Problem]:
    """The problems of one kind that the format reported; duplicate keys and secrets of every file read."""
    documents = (reading.config, *reading.references.values())
    if kind == "secret":
        from .secrets import secrets

        for document in {item.path: item for item in documents}.values():
            yield from secrets(document)
        return
    if kind != "duplicate-key":
        yield from (problem for problem in reading.problems if problem.kind == kind)
        return
    for document in documents:
        path = None if document is reading.config else document.path
        for duplicate in document.duplicates:
            values = {"line": str(duplicate.kept.line)}
            yield Problem(kind, duplicate.key, duplicate.lost, values, path)
