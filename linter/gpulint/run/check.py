"""The pipeline: paths -> files -> readings -> findings -> report."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..finding import FileResult, Finding, JobResult, Report
from ..settings.settings import Settings, project_root
from ..source.referenced import shown_path
from .outcome import Outcome
from .walk import find_files, referring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..finding import Status
    from ..launchers.reading import Jobs
    from ..rules.rule import Selection
    from ..rules.suppress import Seen, Use
    from ..settings.layers import Layers
    from ..source.document import SourceError
    from .walk import Found

INTERNAL_ERROR = "internal error"
"""How the reason of a file begins on which gpulint itself failed."""


def check(
    paths: Iterable[str],
    settings: Settings | Layers | None = None,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Check files and folders and return everything found, files in the order they were met.

    A file that cannot be read becomes a FileResult of status `error` and never stops the others. A file of no
    known format is `skipped` when a folder was walked, an `error` when it was named (unless
    `settings.skip_unknown`). A config that a checked launcher starts is reported as that launcher starts it. Jobs of
    other files that name a named one are checked, too.
    Findings of the baseline are counted, not reported; a comment that silences nothing is a finding.
    `jobs` processes share the files; `progress` is told how many of how many are done.
    Raises rules.RuleError for a rule file that cannot be used, SettingsError for settings that cannot be followed.
    """
    layers = settings or Settings()
    run = Run(layers)
    run.rules(layers.of(os.curdir))  # a rule file that cannot be used is told before any file is read
    found = [*find_files(paths, layers)]
    found += referring(found, layers)
    outcomes: list[Outcome] = []
    for outcome in run.outcomes(found, jobs):
        outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), len(found))
    met = zip(found, outcomes, strict=True)
    return run.report([outcome for item, outcome in met if not item.naming or outcome.file.status == "checked"])


class Run:
    """One run over files: the settings that count for each, and the rules that they choose, loaded once a choice."""

    def __init__(self, layers: Settings | Layers) -> None:
        self.layers = layers
        self.selections: dict[tuple[object, ...], Selection] = {}

    def outcome(self, found: Found) -> Outcome:
        """What comes of one file."""
        settings = self.layers.of(found.path)
        return _check_file(found, settings, self.rules(settings))

    def outcomes(self, found: Sequence[Found], jobs: int) -> Iterable[Outcome]:
        """What comes of each file, in order."""
        if jobs > 1 and len(found) > 1:
            from . import parallel

            return parallel.outcomes(partial(_begun, self.layers), found, jobs)
        return (self.outcome(item) for item in found)

    def report(self, outcomes: Sequence[Outcome]) -> Report:
        """The outcomes of files as one report; a finding that two files lead to counts once."""
        report = Report()
        started = frozenset().union(*(outcome.started for outcome in outcomes))
        idle = self._idle_suppressions(outcomes)
        told: set[tuple[object, ...]] = set()
        parts = frozenset().union(*(outcome.parts for outcome in outcomes))
        for outcome in outcomes:
            report.files.append(_as_part(outcome.file, parts))
            report.texts.update(outcome.texts)
            report.suppressed += outcome.suppressed
            findings = [] if os.path.realpath(outcome.file.path) in started else outcome.findings
            _tell(report, _in_order(outcome.file.path, [*findings, *idle.get(outcome.file.path, ())]), told)
        baseline = self.layers.of(os.curdir).baseline
        if baseline:
            from .baseline import subtract

            subtract(report, baseline)
        return report

    def rules(self, settings: Settings) -> Selection:
        """The rules that settings choose."""
        from ..rules.load import load_rules

        words = (settings.select, settings.extend_select, settings.ignore, settings.rules)
        chosen = (*words, settings.preview, settings.severity)
        if chosen not in self.selections:
            self.selections[chosen] = load_rules(settings)
        return self.selections[chosen]

    def _idle_suppressions(self, outcomes: Sequence[Outcome]) -> dict[str, list[Finding]]:
        """By file, findings about suppressions in and of it that silenced nothing in any of the jobs."""
        from ..rules.suppress import judged

        used = frozenset().union(*(outcome.used for outcome in outcomes))
        seen: dict[str, list[Seen]] = {}
        for outcome in outcomes:
            for item in outcome.seen:
                seen.setdefault(item.document.path, []).append(item)
        findings: dict[str, list[Finding]] = {}
        for path in dict.fromkeys(outcome.file.path for outcome in outcomes):
            settings = self.layers.of(path)
            here = seen.get(path, [])
            if here and (settings.suppressions or any(item.directives.ignores for item in here)):
                findings[path] = judged(here, used, self.rules(settings), settings)
        return findings


def _as_part(file: FileResult, parts: frozenset[str]) -> FileResult:
    """A file without the jobs that could not be judged from it alone, where they were as part of another's."""
    alone = all(job.verdict == "not-checked" for job in file.jobs)
    return replace(file, jobs=()) if file.jobs and alone and os.path.realpath(file.path) in parts else file


def _begun(layers: Settings | Layers) -> Callable[[Found], Outcome]:
    """What makes an outcome of a file in a run of its own."""
    return Run(layers).outcome


def _in_order(path: str, findings: list[Finding]) -> list[Finding]:
    """Those of the file itself first, each file's by line."""
    return sorted(findings, key=lambda f: (f.location.path != path, f.location.path, f.location.span[:2]))


def _tell(report: Report, findings: Iterable[Finding], told: set[tuple[object, ...]]) -> None:
    """Add findings to the report, each once."""
    for item in findings:
        place = item.location
        same = (item.rule, os.path.realpath(place.path), place.span, place.label, item.message)
        if same not in told:
            told.add(same)
            report.findings.append(item)


def _check_file(found: Found, settings: Settings, rules: Selection) -> Outcome:
    from ..formats.core.format import NoJobError
    from ..launchers.reading import UnrecognisedError, open_jobs, recognise_file
    from ..source.document import SourceError
    from ..source.read import UnknownKindError

    path = found.path
    named = found.named and not settings.skip_unknown
    kind: str | None = None
    try:
        recognised = recognise_file(path)
        kind = recognised.kind
        settings = _rooted(settings, path)
        jobs = open_jobs(recognised, settings)
        if not found.naming:
            return _findings(path, jobs, rules, settings)
        outcome = _findings(path, _made_of(found.naming, jobs), rules, settings)
        mine = ", ".join(sorted(map(shown_path, found.naming)))
        return outcome._replace(file=replace(outcome.file, reason=f"names {mine}"))
    except UnrecognisedError:
        status, reason = ("error", "unknown config format") if named else ("skipped", "unknown format")
        return Outcome(FileResult(path, None, status, reason), [], {})  # type: ignore[arg-type]
    except NoJobError as error:
        return Outcome(FileResult(path, kind, "skipped", error.reason), [], {})
    except UnknownKindError as error:
        status, reason = ("error", error.reason) if named else ("skipped", "unknown file type")
        return Outcome(FileResult(path, None, status, reason), [], {})  # type: ignore[arg-type]
    except SourceError as error:
        if not named and kind is None and error.path == path:
            return _unreadable(path, error, rules, settings)
        reason = error.reason if error.path == path else str(error)
        return Outcome(FileResult(path, kind, "error", reason, error.line, error.column), [], {})
    except Exception as error:  # a defect of ours on one file must not hide what the others hold
        return Outcome(FileResult(path, kind, "error", internal_error(error)), [], {})


def _findings(path: str, jobs: Jobs, rules: Selection, settings: Settings) -> Outcome:
    """What the rules find in the jobs of one file; the same finding of two jobs counts once."""
    from ..rules.engine import checked
    from ..rules.facts.facts import Facts
    from ..rules.suppress import Silence
    from ..rules.verdict import verdict_of

    kept: dict[tuple[object, ...], Finding] = {}
    texts: dict[str, str] = {}
    suppressed = 0
    started: set[str] = set()
    parts: set[str] = set()
    seen: list[Seen] = []
    used: set[Use] = set()
    results: list[JobResult] = []
    for opened in (*jobs.opened, *jobs.bare):
        reading = opened.reading
        silence = Silence(opened, settings)
        if reading.config.path != path:
            started.add(os.path.realpath(reading.config.path))
        facts = Facts(reading, opened.project, opened.gpu)
        for item in checked(facts, rules):
            if silence.excuses(item):
                continue
            if silence.hides(item):
                suppressed += 1
            else:
                kept.setdefault((item.rule, item.location, item.message), item)
        if not opened.of_launcher:
            results.append(verdict_of(facts, opened.part))
        seen += silence.seen()
        used |= silence.used
        texts[reading.config.path] = reading.config.text
        texts |= {other.path: other.text for other in reading.references.values()}
        if not opened.of_launcher:
            parts |= {os.path.realpath(other.path) for other in reading.references.values() if other.path != path}
    status: Status = "checked" if kept or jobs.opened else "skipped"
    if jobs.unread:
        results.append(JobResult("", "not-checked", jobs.reason, jobs.unread))
    reason = "" if status == "checked" else jobs.reason
    return Outcome(
        FileResult(path, jobs.kind, status, reason, jobs=tuple(results)), [*kept.values()], texts, suppressed,
        frozenset(started), tuple(seen), frozenset(used), frozenset(parts),
    )  # fmt: skip


def _made_of(named: frozenset[str], jobs: Jobs) -> Jobs:
    """The jobs that one of the named files is part of; of a launcher's own problems nothing."""
    kept = [
        opened
        for opened in jobs.opened
        if not opened.of_launcher
        and any(
            os.path.realpath(document.path) in named
            for document in (opened.reading.config, *opened.reading.references.values())
        )
    ]
    return jobs._replace(opened=kept, unread="", bare=())


def internal_error(error: Exception) -> str:
    """One line about a defect of gpulint itself."""
    return " ".join(f"{INTERNAL_ERROR} ({type(error).__name__}: {error}); please report it".split())


def _rooted(settings: Settings, path: str) -> Settings:
    return settings if settings.root else settings.with_options(root=project_root(os.path.dirname(path) or "."))


def _unreadable(path: str, error: SourceError, rules: Selection, settings: Settings) -> Outcome:
    """What comes of a file that nobody named and nothing can parse: a finding where its keys are those of a config."""
    from ..launchers.unreadable import blank_at, unreadable, whose
    from ..source.read import SUFFIXES

    name = whose(path)
    if name is None:
        return Outcome(FileResult(path, None, "skipped", f"no config that gpulint knows; {error.reason}"), [], {})
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    blank = blank_at(text, error)
    if blank or not error.line:  # a template; or a limit of gpulint's own, at which no other program stops
        reason = f"a template: {blank} is filled in by a script" if blank else error.reason
        unchecked = JobResult("", "not-checked", reason, "a file that can be read")
        return Outcome(FileResult(path, name, "skipped", reason, jobs=(unchecked,)), [], {})
    syntax = SUFFIXES.get(os.path.splitext(path)[1].lower(), "yaml")
    found = _findings(path, unreadable(name, text, error, syntax, settings), rules, settings)
    return found._replace(file=FileResult(path, name, "skipped", error.reason, error.line, error.column))
