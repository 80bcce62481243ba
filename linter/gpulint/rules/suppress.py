"""Findings that the user silenced, and suppressions that silence nothing, which are findings themselves."""

from __future__ import annotations

from dataclasses import replace
from os.path import abspath
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Finding, Suggestion
from ..formats.core.format import Problem, Project, Reading
from ..job.job import Job
from ..settings.directives import Directives, Ignore, read_directives
from ..settings.globs import matches
from ..source.document import Document, SourceError
from ..source.edit.replacement import Edit
from ..source.node import Span
from .engine import run
from .expression import facts_of
from .load import bundled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ..launchers.reading import Opened
    from ..settings.settings import Settings
    from .rule import Rule, Selection

UNUSED = "unused-suppression"
REASONLESS = "suppression-without-reason"
"""Problems that only this module reports, under the names of their rules."""

_HARDWARE = ("gpu", "gpus", "estimate", "peak")
"""The first names of facts that need a GPU."""


class Use(NamedTuple):
    """A suppression that silenced something: the file and line that say so, and the rule as it is written there."""

    path: str
    line: int
    word: str


class Seen(NamedTuple):
    """A file whose comments were read; `gpu` is whether one of its jobs was checked against a GPU."""

    document: Document
    directives: Directives
    gpu: bool


class Silence:
    """The suppressions of one job: comments, each in the file that the finding stands in, and the settings'."""

    def __init__(self, opened: Opened, settings: Settings) -> None:
        reading = opened.reading
        self.documents = {item.path: item for item in (*reading.references.values(), reading.config)}
        self.settings = settings
        self.own = opened.directives
        launcher = reading.references.get("launcher")
        self.checked = launcher.path if launcher is not None else reading.config.path
        self.gpu = opened.gpu is not None
        self.used: set[Use] = set()
        self.known: dict[str, Directives] = {}

    def excuses(self, finding: Finding) -> bool:
        """Whether `per-file-ignores` leaves the rule out in the finding's file."""
        path = abspath(finding.location.path)
        return any(
            matches(path, glob) and any(word == finding.name or finding.rule.startswith(word) for word in rules)
            for glob, rules in self.settings.per_file_ignores
        )

    def hides(self, finding: Finding) -> bool:
        """Whether a finding is silenced; remembers by what."""
        path, line = finding.location.path, finding.location.span.line
        hidden = False
        for ignore in self._directives(path).ignores:
            word = ignore.silences(line, finding.rule, finding.name)
            if word is not None:
                self.used.add(Use(path, ignore.line, word))
                hidden = True
        for item in self.settings.suppressions:
            word = next((word for word in item.rules if word in (finding.rule, finding.name)), None)
            if word is not None and matches(abspath(path), item.glob) and self._below(path, item.key, line):
                self.used.add(Use(item.file, item.line, word))
                hidden = True
        return hidden

    def seen(self) -> Iterator[Seen]:
        """The files of the job with their comments."""
        for path, document in self.documents.items():
            yield Seen(document, self._directives(path), self.gpu)

    def _directives(self, path: str) -> Directives:
        document = self.documents.get(path)
        if document is None or (document.reread is not None and path == self.checked):
            return self.own  # a part of the launcher
        if path not in self.known:
            try:
                self.known[path] = read_directives(document)
            except SourceError:  # the file says so when it is checked itself
                self.known[path] = Directives()
        return self.known[path]

    def _below(self, path: str, key: str, line: int) -> bool:
        if not key:
            return True
        document = self.documents.get(path)
        entry = document.root.find(key) if document is not None and document.roots else None
        return entry is not None and entry.key.span.line <= line <= entry.value.span.end_line


def judged(seen: list[Seen], used: AbstractSet[Use], selection: Selection, settings: Settings) -> list[Finding]:
    """A finding for each suppression of one file that silenced nothing or, where that is asked, gives no reason.

    `seen` is the file, once for each job that it took part in. A rule that did not run, or that needs a GPU where
    none is given, is not held against its suppression.
    """
    judge = _Judge(seen, used, selection, settings)
    return judge.findings() if judge.rules else []


class _Judge:
    def __init__(self, seen: list[Seen], used: AbstractSet[Use], selection: Selection, settings: Settings) -> None:
        self.file = seen[0]
        self.gpu = any(item.gpu for item in seen)
        self.used = used
        self.settings = settings
        wanted = {UNUSED} | ({REASONLESS} if settings.require_reasons else set())
        self.rules = tuple(rule for rule in selection.rules if rule.each in wanted)
        self.selection = selection._replace(rules=self.rules)
        self.active = {
            word: rule
            for rule in selection.rules
            if rule.id not in selection.muted
            for word in (rule.id, rule.name)
        }  # fmt: skip
        self.known = {word for rule in (*bundled()[0], *selection.rules) for word in (rule.id, rule.name)}

    def findings(self) -> list[Finding]:
        """Those of the comments, then those of the settings."""
        found: list[Finding] = []
        document = self.file.document
        for ignore in self.file.directives.ignores:
            span = _comment_span(document.text, ignore)
            idle = self._idle(document.path, ignore.line, ignore.rules)
            for finding in self._run(document, span, idle, ignore.rules, ignore.reason):
                unused = finding.name == UNUSED
                found.append(replace(finding, suggestions=(_without(document, ignore, idle),)) if unused else finding)
        for item in self.settings.suppressions:
            if matches(abspath(document.path), item.glob):
                idle = self._idle(item.file, item.line, item.rules)
                document = Document(item.file, "toml", "", [], [], [])
                found += self._run(document, Span(item.line, 1, item.line, 1, 0, 0), idle, item.rules, item.reason)
        return found

    def _idle(self, path: str, line: int, words: tuple[str, ...]) -> list[str]:
        """The words of a suppression that silence nothing and could have."""
        return [
            word
            for word in words
            if Use(path, line, word) not in self.used
            and (word not in self.known or (word in self.active and (self.gpu or not _needs_gpu(self.active[word]))))
        ]

    def _run(
        self, document: Document, span: Span, idle: list[str], words: tuple[str, ...], reason: str
    ) -> list[Finding]:
        problems = [Problem(UNUSED, word, span, _values(word, self.known)) for word in idle]
        if not reason:
            problems.append(Problem(REASONLESS, ", ".join(words), span, {}))
        reading = Reading("", "", document, Job(), problems=problems)
        project = Project(self.settings.root, None, None, None, lambda *_: None)
        return run(reading, project, None, self.selection)


def _comment_span(text: str, ignore: Ignore) -> Span:
    begin = text.rfind("\n", 0, ignore.start)
    return Span(
        ignore.line, ignore.start - begin, ignore.line, ignore.end - begin, ignore.start, ignore.end
    )  # fmt: skip


def _values(word: str, known: set[str]) -> dict[str, str]:
    if word in known:
        return {"reason": "matches no finding"}
    from difflib import get_close_matches

    near = get_close_matches(word[:80], known, 1, 0.6)
    return {"reason": "is not a rule" + (f"; did you mean {near[0]}?" if near else "")}


def _without(document: Document, ignore: Ignore, idle: list[str]) -> Suggestion:
    """The comment without the rules that it names for nothing, or gone where it names no other."""
    text = document.text
    left = [word for word in ignore.rules if word not in idle]
    if left:
        start = text.index("[", ignore.start) + 1
        end = text.index("]", start)
        return Suggestion(
            f"remove {', '.join(idle)}", None, "safe", (Edit(document.path, start, end, ", ".join(left)),)
        )  # fmt: skip
    begin = text.rfind("\n", 0, ignore.start) + 1
    if text[begin : ignore.start].strip():  # behind a line
        start = begin + len(text[begin : ignore.start].rstrip())
        return Suggestion("remove the comment", None, "safe", (Edit(document.path, start, ignore.end, ""),))
    end = text.find("\n", ignore.end) + 1 or len(text)
    return Suggestion("remove the comment", None, "safe", (Edit(document.path, begin, end, ""),))


def _needs_gpu(rule: Rule) -> bool:
    return any(name.split(".")[0] in _HARDWARE for name in facts_of(rule.when))
