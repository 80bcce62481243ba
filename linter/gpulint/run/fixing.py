"""Fixes: suggestions written into the files, each tried first and kept only where it cures and harms nothing.

A fix is tried in memory: the edited files, and every checked file that reads them, are checked again. It is kept when
the finding is gone and no warning or error has come; else the files stay as they were. The next fix starts from the
text that the last one left, so that fixes of one file never meet. `write` then puts the texts on disk.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Report
from ..settings.settings import Settings, project_root
from ..source.edit.edit import EditError, apply
from ..source.edit.write import WriteError, refusal, replace_text
from ..source.overlay import instead
from .check import Run
from .walk import find_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..finding import Finding, Suggestion
    from ..settings.layers import Layers
    from .outcome import Outcome

MAX_TRIES = 4
"""How often the fix of one finding is tried: again after another fix of its files."""


class Held(NamedTuple):
    """A finding whose fix was left out, and why."""

    finding: Finding
    reason: str


class Change(NamedTuple):
    """A file's text as it is on disk, and with the fixes."""

    before: str
    after: str


@dataclass(slots=True)
class Fixes:
    """What fixing came to: what is left, how many findings are gone, those held back, the changed files by path."""

    report: Report = field(default_factory=Report)
    fixed: int = 0
    held: list[Held] = field(default_factory=list)
    changes: dict[str, Change] = field(default_factory=dict)


def fix(paths: Iterable[str], settings: Settings | Layers | None = None, *, unsafe: bool = False) -> Fixes:
    """Check files and work out the fixes of what is found; nothing is written.

    Safe fixes keep what the job computes; with `unsafe` the rest count too. Raises as `check` does.
    """
    return _Fixer(paths, settings or Settings(), unsafe=unsafe).fixes()


def write(fixes: Fixes) -> list[tuple[str, str]]:
    """Write the changed files; the path and reason of each that could not be written."""
    failed = []
    for path, change in fixes.changes.items():
        try:
            replace_text(path, *change)
        except WriteError as error:
            failed.append((path, str(error)))
    return failed


def fix_of(finding: Finding, *, unsafe: bool) -> Iterator[Suggestion]:
    """The suggestions of a finding that may be applied, best first."""
    for suggestion in finding.suggestions:
        if suggestion.edits and (suggestion.applicability == "safe" or unsafe):
            yield suggestion


class _Fixer:
    """The state of one run: outcomes and their report, and by real path the texts of the files that changed."""

    def __init__(self, paths: Iterable[str], layers: Settings | Layers, *, unsafe: bool) -> None:
        self.layers = layers
        self.unsafe = unsafe
        self.run = Run(layers)
        self.files = {found.path: found for found in find_files(paths, layers)}
        self.outcomes = {path: self.run.outcome(found) for path, found in self.files.items()}
        self.report = self.reported(self.outcomes)
        self.originals: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.held: dict[_Key, Held] = {}

    def reported(self, outcomes: dict[str, Outcome]) -> Report:
        return self.run.report([*outcomes.values()])

    def fixes(self) -> Fixes:
        """Fix until nothing more is cured."""
        before = Counter(map(_what, self.report.findings))
        tries: Counter[_Key] = Counter()
        while True:
            finding = next((item for item in _in_order(self.report.findings) if self.is_open(item, tries)), None)
            if finding is None:
                break
            tries[_key(finding)] += 1
            reasons = []
            for suggestion in fix_of(finding, unsafe=self.unsafe):
                reasons.append(self.attempt(finding, suggestion))
                if not reasons[-1]:
                    break
            if reasons[-1]:
                self.held[_key(finding)] = Held(finding, reasons[0])
        gone = before - Counter(map(_what, self.report.findings))
        held = [self.held[key] for key in map(_key, self.report.findings) if key in self.held]
        changes = {
            self.shown[real]: Change(self.originals[real], text)
            for real, text in self.texts.items()
            if text != self.originals[real]
        }
        return Fixes(self.report, gone.total(), held, changes)

    def is_open(self, finding: Finding, tries: Counter[_Key]) -> bool:
        key = _key(finding)
        return key not in self.held and tries[key] < MAX_TRIES and any(fix_of(finding, unsafe=self.unsafe))

    def attempt(self, finding: Finding, suggestion: Suggestion) -> str:
        """Apply one suggestion; why not, "" where it was."""
        try:
            texts = self.edited(finding, suggestion)
        except EditError as error:
            return str(error)
        affected = [path for path, outcome in self.outcomes.items() if not texts.keys().isdisjoint(_reads(outcome))]
        with instead({**self.texts, **texts}):
            outcomes = {**self.outcomes, **{path: self.run.outcome(self.files[path]) for path in affected}}
            report = self.reported(outcomes)
        reason = _harm(self.report, report, finding)
        if reason:
            return reason
        self.texts.update(texts)
        self.outcomes, self.report = outcomes, report
        near = {path for other in affected for path in outcomes[other].texts}
        self.held = {key: held for key, held in self.held.items() if held.finding.location.path not in near}
        return ""

    def edited(self, finding: Finding, suggestion: Suggestion) -> dict[str, str]:
        """The texts of the files after a suggestion, by real path. Raises EditError where one is not to be written."""
        known = self.report.texts
        texts: dict[str, str] = {}
        for name in dict.fromkeys(edit.path for edit in suggestion.edits):
            reason = refusal(name, self.root_of(finding))
            if reason or name not in known:
                raise EditError(f"{name} not written: {reason or 'it was not read'}")
            real = os.path.realpath(name)
            self.originals.setdefault(real, known[name])
            self.shown.setdefault(real, name)
            texts[real] = apply(known[name], [edit for edit in suggestion.edits if edit.path == name])
        return texts

    def root_of(self, finding: Finding) -> str:
        """The project root of the checked file that a finding belongs to."""
        owners = (path for path, outcome in self.outcomes.items() if finding in outcome.findings)
        owner = next(owners, finding.location.path)
        root = self.layers.of(owner).root
        return root if root and not refusal(owner, root) else project_root(os.path.dirname(owner) or os.curdir)


_Key = tuple[str, str, str]


def _reads(outcome: Outcome) -> set[str]:
    """The real paths of the files behind an outcome."""
    return {os.path.realpath(path) for path in (outcome.file.path, *outcome.texts)}


def _harm(before: Report, after: Report, cured: Finding) -> str:
    """What speaks against a fix, "" for nothing: a file is no longer read, the finding stays, another has come."""
    for one, two in zip(before.files, after.files, strict=True):
        if one.status != two.status:
            return f"{two.path} would no longer be checked: {two.reason}"
    if Counter(map(_what, after.findings))[_what(cured)] >= Counter(map(_what, before.findings))[_what(cured)]:
        return "the finding would remain"
    room = Counter((finding.rule, finding.severity) for finding in before.findings)
    room[cured.rule, cured.severity] -= 1
    for finding in after.findings:
        room[finding.rule, finding.severity] -= 1
        if finding.severity != "info" and room[finding.rule, finding.severity] < 0:
            return f"it would cause {finding.rule} {finding.name}"
    return ""


def _in_order(findings: Iterable[Finding]) -> list[Finding]:
    """What stands wrong in the file first, memory after it: a misspelt key may be what the memory lacks."""
    return sorted(findings, key=lambda finding: finding.estimate is not None)


def _what(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.location.path


def _key(finding: Finding) -> _Key:
    return finding.rule, finding.fingerprint, finding.message
