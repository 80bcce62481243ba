"""The files that are open in an editor, checked together as their texts stand there, saved or not.

Everything here is for one thread: while a file is read, the open texts take the place of what is on disk.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ..finding import FileResult, Report
from ..rules.rule import RuleError
from ..run.check import INTERNAL_ERROR, Run, internal_error
from ..run.walk import find_files
from ..settings.layers import Layers
from ..settings.settings import SETTINGS_NAMES, SettingsError
from ..source.overlay import instead
from ..source.read import SUFFIXES
from .reading import Read, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..finding import Finding
    from ..run.outcome import Outcome

OWN_NAMES = tuple(name for name in SETTINGS_NAMES if name != "pyproject.toml")
"""Files of settings, which are no configs."""


class Buffer(NamedTuple):
    """An open file; `version` is the editor's number of the text."""

    path: str
    text: str
    version: int | None


class Trouble(NamedTuple):
    """Something that keeps a file from being checked; `line` and `column` from 1, 0 for nowhere."""

    path: str
    reason: str
    line: int = 0
    column: int = 0


class Workspace:
    """The open files by path, what came of each when it was last checked, and how it was last read.

    `layers` reads the settings anew: they may change between two checks.
    """

    def __init__(self, layers: Callable[[], Layers] = Layers) -> None:
        self.layers = layers
        self.buffers: dict[str, Buffer] = {}
        self.report = Report()
        self.troubles: list[Trouble] = []
        self._outcomes: dict[str, Outcome] = {}
        self._failures: dict[str, Trouble] = {}
        self._readings: dict[str, Read] = {}
        self._understood: dict[str, Read] = {}
        self._dirty: set[str] = set()

    def put(self, path: str, text: str, version: int | None = None) -> None:
        """Open a file, or give an open one another text."""
        self.buffers[path] = Buffer(path, text, version)
        self._touch(path)

    def close(self, path: str) -> None:
        """Forget a file; others see what is on disk of it."""
        for known in (self.buffers, self._outcomes, self._failures, self._readings, self._understood):
            known.pop(path, None)
        self._touch(path)

    def touch_all(self) -> None:
        """Files on disk have changed: settings, or what configs name."""
        self._dirty.update(self.buffers)

    def check(self) -> Report:
        """Check again what has changed, and what reads it; the findings in all open files."""
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            with instead(self.texts()):
                self._check(dirty)
        return self.report

    def reading(self, path: str) -> Read | None:
        """The jobs of an open file as it stands now; None where it holds none or cannot be read."""
        buffer = self.buffers.get(path)
        if buffer is None or not syntax_of(*buffer[:2]):
            return None
        self.check()
        if path not in self._readings:
            with instead(self.texts()):
                self._readings[path] = read_file(path, self.layers())
            if self._readings[path].held or self._readings[path].jobs:
                self._understood[path] = self._readings[path]
        return self._readings[path]

    def understood(self, path: str, line: int) -> Read | None:
        """The last reading that came to something; while the text has none yet, that of the text without a line."""
        self.reading(path)
        buffer = self.buffers.get(path)
        if path not in self._understood and buffer is not None and syntax_of(*buffer[:2]):
            lines = buffer.text.split("\n")
            if line < len(lines):
                lines[line] = ""
            left = re.sub(r",(\s*[}\]])", r"\1", "\n".join(lines))  # a comma that nothing follows now
            with instead({**self.texts(), os.path.realpath(path): left}):
                read = read_file(path, self.layers())
            if read.held:
                self._understood[path] = read
        return self._understood.get(path)

    def last(self, path: str) -> Read | None:
        """The reading of a file; while it cannot be read, the last one that came to something."""
        read = self.reading(path)
        outcome = self._outcomes.get(path)
        broken = outcome is not None and outcome.file.broken
        return self._understood.get(path, read) if broken else read

    def findings(self, path: str) -> Iterator[Finding]:
        """The findings in one file."""
        return (item for item in self.check().findings if os.path.abspath(item.location.path) == path)

    def text(self, path: str) -> str | None:
        """The text of a file that is open, or that an open one led to."""
        buffer = self.buffers.get(path)
        if buffer is not None:
            return buffer.text
        return next((text for name, text in self.report.texts.items() if os.path.abspath(name) == path), None)

    def _touch(self, path: str) -> None:
        real = os.path.realpath(path)
        self._dirty.add(path)
        if os.path.basename(path) in SETTINGS_NAMES:
            self.touch_all()
        for other, outcome in self._outcomes.items():
            if outcome.file.broken or any(os.path.realpath(name) == real for name in outcome.texts):
                self._dirty.add(other)
        for other in self._dirty:
            self._readings.pop(other, None)

    def texts(self) -> dict[str, str]:
        """The open texts by real path, as they take the place of files."""
        return {os.path.realpath(path): buffer.text for path, buffer in self.buffers.items()}

    def _check(self, dirty: set[str]) -> None:
        """Each file that changed, alone, so that none stops the others."""
        run = Run(self.layers())
        for path in self.buffers:
            if path in dirty:
                self._readings.pop(path, None)
                self._outcomes.pop(path, None)
                self._failures.pop(path, None)
                try:
                    self._outcome(path, run)
                except (SettingsError, RuleError) as error:
                    self._failures[path] = _trouble(path, str(error))
                except Exception as error:  # a defect must not end the editor's session
                    self._failures[path] = Trouble(path, internal_error(error))
        outcomes = [self._outcomes[path] for path in self.buffers if path in self._outcomes]
        try:
            self.report = run.report(outcomes)
        except Exception:  # settings of the folder, which are told where they count, or a defect
            self.report = Report(findings=[item for outcome in outcomes for item in outcome.findings])
        failed = [file for file in (outcome.file for outcome in outcomes) if file.broken]
        told = [Trouble(file.path, file.reason, file.line, file.column) for file in failed if self._is_told(file)]
        self.troubles = [*self._failures.values(), *told]

    def _outcome(self, path: str, run: Run) -> None:
        if os.path.basename(path) in OWN_NAMES:
            Layers(config=path).of(path)
        elif syntax_of(*self.buffers[path][:2]):
            found = next(find_files([path], run.layers), None)
            if found is not None:
                outcome = run.outcome(found._replace(named=False))
                # what is wrong with a file that cannot be read is told as trouble, while it is written
                self._outcomes[path] = outcome._replace(findings=[]) if outcome.file.broken else outcome

    def _is_told(self, file: FileResult) -> bool:
        """Whether a file that cannot be read is one of ours: editors have others to tell of broken YAML and JSON."""
        if not file.line or file.format or file.path in self._understood or file.reason.startswith(INTERNAL_ERROR):
            return True
        return self.understood(file.path, file.line - 1) is not None


def syntax_of(path: str, text: str) -> str:
    """How a file would be read, "" for a kind that gpulint does not read."""
    shell = "shell" if text.startswith("#!") else ""
    return "" if os.path.basename(path) in OWN_NAMES else SUFFIXES.get(os.path.splitext(path)[1].lower(), shell)


def _trouble(path: str, message: str) -> Trouble:
    """What a message says; its own place where that is in the file."""
    place = re.match(r"(.+?):(\d+)(?::(\d+))?: (.*)", message, re.DOTALL)
    if place is None or os.path.realpath(place[1]) != os.path.realpath(path):
        return Trouble(path, message)
    return Trouble(path, place[4], int(place[2]), int(place[3] or 1))
