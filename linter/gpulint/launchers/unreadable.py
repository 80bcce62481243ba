"""A config that nothing can parse: whose it is by its keys, and what rules may say of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..formats.core.format import Problem, Reading
from ..formats.core.registry import recognise
from ..job.job import Job
from ..settings.directives import Directives
from ..source.document import Document
from ..source.node import Node, Span
from ..source.outline import outline
from .project import Hardware, project_of
from .reading import Jobs, Opened

if TYPE_CHECKING:
    from ..settings.settings import Settings
    from ..source.document import SourceError

_FILLED_IN = re.compile(r"[A-Z][A-Z0-9_]{2,}|\{[\{%].*|<\w[^>]*>|\$\{?\w.*|%\(?\w.*|@\w+@")
"""What a script puts values for before anything reads the file: `CONFIG_BATCH_SIZE`, `{{ batch }}`, `<batch>`."""


def whose(path: str) -> str | None:
    """The format whose keys a file has that cannot be read; None where it is nobody's."""
    found = outline(path)
    form = recognise(found) if found is not None else None
    return form.name if form is not None else None


def blank_at(text: str, error: SourceError) -> str:
    """The word of a template at which a file cannot be read; "" where there is none."""
    lines = text.splitlines()
    line = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    at = max(0, error.column - 1)
    match = _FILLED_IN.match(line, at) or _FILLED_IN.match(line, max(0, at - 1))  # in `{{`, the second is at fault
    return match[0].split(",")[0].strip() if match else ""


def unreadable(name: str, text: str, error: SourceError, syntax: str, settings: Settings) -> Jobs:
    """No job, and the problem that the file of the format `name` cannot be read."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    line, column = min(max(error.line, 1), len(starts)), max(error.column, 1)
    start = min(starts[line - 1] + column - 1, len(text))
    span = Span(line, column, line, column, start, start)
    document = Document(error.path, syntax, text, [Node("mapping", [], span, "")], [], [])
    problem = Problem("unreadable", "", span, {"reason": error.reason, "expected": name})
    reading = Reading("unreadable", name, document, Job(), problems=[problem])
    project = project_of(document, settings, Hardware(None, None, None), 0)
    return Jobs(name, [Opened(reading, project, None, Directives(), of_launcher=True)], error.reason)
