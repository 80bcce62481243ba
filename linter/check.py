"""The pipeline: paths -> files -> readings -> findings -> report."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NamedTuple

from .finding import FileResult, Finding, Report
from .settings import Settings, project_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .directives import Directives
    from .finding import Status
    from .reading import Jobs, Opened
    from .rules.rule import Selection

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".slurm", ".sbatch")
INTERNAL_ERROR = "internal error"
"""How the reason of a file begins on which gpulint itself failed."""

_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv", "site-packages"}


def check(paths: Iterable[str], settings: Settings | None = None) -> Report:
    """Check files and folders and return everything found, files in the order they were met.

    A file that cannot be read becomes a FileResult of status `error` and never stops the others. A file of no
    known format is `skipped` when a folder was walked, an `error` when it was named (unless
    `settings.skip_unknown`). A config that a checked launcher starts is reported as that launcher starts it.
    Raises rules.RuleError for a rule file that cannot be used.
    """
    from .rules.load import load_rules

    settings = settings or Settings()
    rules = load_rules(settings)
    return reported([check_file(found, settings, rules) for found in find_files(paths, settings)])


def reported(outcomes: Sequence[Outcome]) -> Report:
    """The outcomes of files as one report; a finding that two files lead to counts once."""
    report = Report()
    started = frozenset().union(*(outcome.started for outcome in outcomes))
    told: set[tuple[object, ...]] = set()
    for outcome in outcomes:
        report.files.append(outcome.file)
        report.texts.update(outcome.texts)
        report.suppressed += outcome.suppressed
        if os.path.realpath(outcome.file.path) in started:
            continue
        for item in outcome.findings:
            same = (item.rule, item.location, item.message)
            if same not in told:
                told.add(same)
                report.findings.append(item)
    return report


class Found(NamedTuple):
    """A path to check: named by the user, or met while walking a folder."""

    path: str
    named: bool


class Outcome(NamedTuple):
    """What came of one file; `started` are the other files whose jobs it starts."""

    file: FileResult
    findings: list[Finding]
    texts: dict[str, str]
    suppressed: int = 0
    started: frozenset[str] = frozenset()


def find_files(paths: Iterable[str], settings: Settings) -> Iterator[Found]:
    """The files to check, each once: named ones as they are, folders walked in sorted order."""
    seen: set[str] = set()
    for path in paths:
        path = os.fspath(path)
        named = not os.path.isdir(path)
        for file in [path] if named else _walk(path):
            real = os.path.realpath(file)
            if real not in seen and not _excluded(file, settings):
                seen.add(real)
                yield Found(file, named)


def _walk(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.join(parent, name)
            if name.lower().endswith(SUFFIXES) and os.path.isfile(path):
                yield os.path.normpath(path)


def _excluded(path: str, settings: Settings) -> bool:
    relative = os.path.relpath(path, settings.root) if settings.root else path
    return any(fnmatch(relative, pattern) or fnmatch(path, pattern) for pattern in settings.exclude)


def check_file(found: Found, settings: Settings, rules: Selection) -> Outcome:
    """What came of one file: its findings, or why there are none. Nothing is raised."""
    from .formats.format import NoJobError
    from .reading import UnrecognisedError, open_jobs, recognise_file
    from .source.document import SourceError

    path = found.path
    kind: str | None = None
    try:
        recognised = recognise_file(path)
        kind = recognised.kind
        return _findings(path, open_jobs(recognised, rooted(settings, path)), rules)
    except UnrecognisedError:
        refused = found.named and not settings.skip_unknown
        status, reason = ("error", "not a config of a known format") if refused else ("skipped", "unknown format")
        return Outcome(FileResult(path, None, status, reason), [], {})  # type: ignore[arg-type]
    except NoJobError as error:
        return Outcome(FileResult(path, kind, "skipped", error.reason), [], {})
    except SourceError as error:
        if not found.named and kind is None and _is_template(path):
            return Outcome(FileResult(path, None, "skipped", "template"), [], {})
        reason = error.reason if error.path == path else str(error)
        return Outcome(FileResult(path, kind, "error", reason, error.line, error.column), [], {})
    except Exception as error:  # a defect of ours on one file must not hide what the others hold
        return Outcome(FileResult(path, kind, "error", internal_error(error)), [], {})


def _findings(path: str, jobs: Jobs, rules: Selection) -> Outcome:
    """What the rules find in the jobs of one file; the same finding of two jobs counts once."""
    from .rules.engine import run

    kept: dict[tuple[object, ...], Finding] = {}
    texts: dict[str, str] = {}
    suppressed = 0
    started: set[str] = set()
    for opened in jobs.opened:
        reading = opened.reading
        said = _Suppressions(opened)
        if reading.config.path != path:
            started.add(os.path.realpath(reading.config.path))
        for item in run(reading, opened.project, opened.gpu, rules):
            if said.of(item.location.path).ignores(item.location.span.line, item.rule, item.name):
                suppressed += 1
            else:
                kept.setdefault((item.rule, item.location, item.message), item)
        texts[reading.config.path] = reading.config.text
        texts |= {other.path: other.text for other in reading.references.values()}
    status: Status = "checked" if jobs.opened else "skipped"
    return Outcome(
        FileResult(path, jobs.kind, status, "" if jobs.opened else jobs.reason), [*kept.values()], texts, suppressed,
        frozenset(started),
    )  # fmt: skip


class _Suppressions:
    """The comments that silence findings, each in the file that the finding stands in."""

    def __init__(self, opened: Opened) -> None:
        reading = opened.reading
        self.documents = {item.path: item for item in (*reading.references.values(), reading.config)}
        self.known: dict[str, Directives] = {}
        self.own = opened.directives

    def of(self, path: str) -> Directives:
        """The directives of a file of the job."""
        from .directives import Directives, read_directives
        from .source.document import SourceError

        document = self.documents.get(path)
        if document is None:
            return self.own
        if path not in self.known:
            try:
                self.known[path] = read_directives(document)
            except SourceError:  # the file says so when it is checked itself
                self.known[path] = Directives()
        return self.known[path]


def internal_error(error: Exception) -> str:
    """One line about a defect of gpulint itself."""
    return " ".join(f"{INTERNAL_ERROR} ({type(error).__name__}: {error}); please report it".split())


def rooted(settings: Settings, path: str) -> Settings:
    """The settings with a project root: the one they name, or that of the file."""
    return settings if settings.root else settings.with_options(root=project_root(os.path.dirname(path) or "."))


def _is_template(path: str) -> bool:
    """Whether an unreadable file is a Jinja or Helm template rather than a broken config."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return False
    return "{{" in text or "{%" in text
