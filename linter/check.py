"""The pipeline: paths -> files -> readings -> findings -> report."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from typing import TYPE_CHECKING, NamedTuple

from .finding import FileResult, Finding, Report
from .settings import Settings, project_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .finding import Status
    from .reading import Jobs
    from .rules.rule import Selection

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".slurm", ".sbatch")
INTERNAL_ERROR = "internal error"
"""How the reason of a file begins on which gpulint itself failed."""

_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv", "site-packages"}


def check(paths: Iterable[str], settings: Settings | None = None) -> Report:
    """Check files and folders and return everything found, files in the order they were met.

    A file that cannot be read becomes a FileResult of status `error` and never stops the others. A file of no
    known format is `skipped` when a folder was walked, an `error` when it was named (unless
    `settings.skip_unknown`). Raises rules.RuleError for a rule file that cannot be used.
    """
    from .rules.load import load_rules

    settings = settings or Settings()
    rules = load_rules(settings)
    report = Report()
    for found in find_files(paths, settings):
        outcome = _check_file(found, settings, rules)
        report.files.append(outcome.file)
        report.findings.extend(outcome.findings)
        report.texts.update(outcome.texts)
        report.suppressed += outcome.suppressed
    return report


class Found(NamedTuple):
    """A path to check: named by the user, or met while walking a folder."""

    path: str
    named: bool


class _Outcome(NamedTuple):
    file: FileResult
    findings: list[Finding]
    texts: dict[str, str]
    suppressed: int = 0


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


def _check_file(found: Found, settings: Settings, rules: Selection) -> _Outcome:
    from .formats.format import NoJobError
    from .reading import UnrecognisedError, open_jobs, recognise_file
    from .source.document import SourceError

    path = found.path
    kind: str | None = None
    try:
        recognised = recognise_file(path)
        kind = recognised.kind
        return _findings(path, open_jobs(recognised, _rooted(settings, path)), rules)
    except UnrecognisedError:
        refused = found.named and not settings.skip_unknown
        status, reason = ("error", "not a config of a known format") if refused else ("skipped", "unknown format")
        return _Outcome(FileResult(path, None, status, reason), [], {})  # type: ignore[arg-type]
    except NoJobError as error:
        return _Outcome(FileResult(path, kind, "skipped", error.reason), [], {})
    except SourceError as error:
        if not found.named and kind is None and _is_template(path):
            return _Outcome(FileResult(path, None, "skipped", "template"), [], {})
        reason = error.reason if error.path == path else str(error)
        return _Outcome(FileResult(path, kind, "error", reason, error.line, error.column), [], {})
    except Exception as error:  # a defect of ours on one file must not hide what the others hold
        return _Outcome(FileResult(path, kind, "error", internal_error(error)), [], {})


def _findings(path: str, jobs: Jobs, rules: Selection) -> _Outcome:
    """What the rules find in the jobs of one file; the same finding of two jobs counts once."""
    from .rules.engine import run

    kept: dict[tuple[object, ...], Finding] = {}
    texts: dict[str, str] = {}
    suppressed = 0
    for opened in jobs.opened:
        reading = opened.reading
        for item in run(reading, opened.project, opened.gpu, rules):
            if opened.directives.ignores(item.location.span.line, item.rule, item.name):
                suppressed += 1
            else:
                kept.setdefault((item.rule, item.location, item.message), item)
        texts[reading.config.path] = reading.config.text
        texts |= {other.path: other.text for other in reading.references.values()}
    status: Status = "checked" if jobs.opened else "skipped"
    return _Outcome(
        FileResult(path, jobs.kind, status, "" if jobs.opened else jobs.reason), [*kept.values()], texts, suppressed
    )


def internal_error(error: Exception) -> str:
    """One line about a defect of gpulint itself."""
    return " ".join(f"{INTERNAL_ERROR} ({type(error).__name__}: {error}); please report it".split())


def _rooted(settings: Settings, path: str) -> Settings:
    return settings if settings.root else settings.with_options(root=project_root(os.path.dirname(path) or "."))


def _is_template(path: str) -> bool:
    """Whether an unreadable file is a Jinja or Helm template rather than a broken config."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return False
    return "{{" in text or "{%" in text
