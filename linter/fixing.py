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

from .check import check_file, find_files, reported
from .finding import Report
from .settings import Settings, project_root
from .source.edit import EditError, apply
from .source.overlay import instead
from .source.write import WriteError, refusal, replace_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .check import Found, Outcome
    from .finding import Finding, Suggestion

MAX_TRIED = 200
"""Fixes tried for one file: each checks it again."""


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


def fix(paths: Iterable[str], settings: Settings, *, unsafe: bool = False) -> Fixes:
    """Check files and work out the fixes of what is found; nothing is written.

    Safe fixes keep what the job computes; with `unsafe` the rest count too. Raises rules.RuleError for a rule file that
    cannot be used.
    """
    return _Fixer(paths, settings, unsafe=unsafe).run()


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
    """The state of one run: outcomes by path, and the texts of the files that changed."""

    def __init__(self, paths: Iterable[str], settings: Settings, *, unsafe: bool) -> None:
        from .rules.load import load_rules

        self.settings = settings
        self.rules = load_rules(settings)
        self.unsafe = unsafe
        self.files = {found.path: found for found in find_files(paths, settings)}
        self.outcomes = {path: self.checked(found) for path, found in self.files.items()}
        self.originals: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.held: list[Held] = []

    def checked(self, found: Found) -> Outcome:
        return check_file(found, self.settings, self.rules)

    def run(self) -> Fixes:
        before = reported([*self.outcomes.values()])
        for path in self.files:
            if not self.is_started(path):
                self.fix_file(path)
        report = reported([*self.outcomes.values()])
        gone = Counter(map(_what, before.findings)) - Counter(map(_what, report.findings))
        left = {_key(finding) for finding in report.findings}
        changes = {
            self.shown[real]: Change(self.originals[real], text)
            for real, text in self.texts.items()
            if text != self.originals[real]
        }
        return Fixes(report, gone.total(), [held for held in self.held if _key(held.finding) in left], changes)

    def is_started(self, path: str) -> bool:
        """Whether a launcher reports on that file."""
        real = os.path.realpath(path)
        return any(real in outcome.started for outcome in self.outcomes.values())

    def fix_file(self, path: str) -> None:
        """Fix what one file leads to until nothing more is cured; what failed is tried again after every fix."""
        held: dict[tuple[object, ...], Held] = {}
        for _ in range(MAX_TRIED):
            finding = next((item for item in self.outcomes[path].findings if self.is_open(item, held)), None)
            if finding is None:
                break
            reasons = []
            for suggestion in fix_of(finding, unsafe=self.unsafe):
                reasons.append(self.attempt(path, finding, suggestion))
                if not reasons[-1]:
                    break
            if reasons[-1]:
                held[_key(finding)] = Held(finding, reasons[0])
            else:
                held.clear()
        self.held += held.values()

    def is_open(self, finding: Finding, held: dict[tuple[object, ...], Held]) -> bool:
        return _key(finding) not in held and any(fix_of(finding, unsafe=self.unsafe))

    def attempt(self, path: str, finding: Finding, suggestion: Suggestion) -> str:
        """Apply one suggestion; why not, "" where it was."""
        try:
            texts = self.edited(path, suggestion)
        except EditError as error:
            return str(error)
        changed = texts.keys()
        affected = [
            other
            for other, outcome in self.outcomes.items()
            if other == path or not changed.isdisjoint(map(os.path.realpath, outcome.texts))
        ]
        with instead({**self.texts, **texts}):
            after = {other: self.checked(self.files[other]) for other in affected}
        for other, outcome in after.items():
            reason = _harm(self.outcomes[other], outcome, finding if other == path else None)
            if reason and not (other != path and self.is_started(other)):
                return reason
        self.texts.update(texts)
        self.outcomes.update(after)
        return ""

    def edited(self, path: str, suggestion: Suggestion) -> dict[str, str]:
        """The texts of the files after a suggestion, by real path. Raises EditError where one is not to be written."""
        known = self.outcomes[path].texts
        texts: dict[str, str] = {}
        for name in dict.fromkeys(edit.path for edit in suggestion.edits):
            reason = refusal(name, self.root_of(path))
            if reason or name not in known:
                raise EditError(f"{name} is not written: {reason or 'it was not read'}")
            real = os.path.realpath(name)
            self.originals.setdefault(real, known[name])
            self.shown.setdefault(real, name)
            texts[real] = apply(known[name], [edit for edit in suggestion.edits if edit.path == name])
        return texts

    def root_of(self, path: str) -> str:
        """The project root of a checked file: that of the run, or its own where it lies elsewhere."""
        root = self.settings.root
        if root and not refusal(path, root):
            return root
        return project_root(os.path.dirname(os.path.abspath(path)))


def _harm(before: Outcome, after: Outcome, cured: Finding | None) -> str:
    """What speaks against a fix, "" for nothing: the file is no longer read, the finding stays, another has come."""
    if after.file.status != before.file.status:
        return f"{after.file.path} would no longer be checked: {after.file.reason}"
    count = _counts(before), _counts(after)
    if cured is not None:
        one = (cured.rule, "")
        if count[1][one] >= count[0][one]:
            return "the finding would stay"
    for finding in after.findings:
        key = (finding.rule, finding.severity)
        gone = cured is not None and key == (cured.rule, cured.severity)
        if finding.severity != "info" and count[1][key] > count[0][key] - gone:
            return f"it would bring {finding.rule} {finding.name}"
    return ""


def _counts(outcome: Outcome) -> Counter[tuple[str, str]]:
    """How often each rule was found, in all and by severity."""
    counts: Counter[tuple[str, str]] = Counter((finding.rule, "") for finding in outcome.findings)
    counts.update((finding.rule, finding.severity) for finding in outcome.findings)
    return counts


def _what(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.location.path


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.fingerprint, finding.message
