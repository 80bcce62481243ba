"""Comments that speak to gpulint.

# gpulint: gpu=h100-80gb gpus=8 nodes=1
# gpulint: ignore[RULE, ...] reason           behind a line: for that line; on a line of its own: for the next one
# gpulint: ignore-start[RULE, ...] reason     from here ...
# gpulint: ignore-end                         ... to here
# gpulint: ignore-file[RULE, ...] reason
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from ..source.document import Document, SourceError

_MARK = re.compile(r"^\s*gpulint:\s*(.*)$")
_PAIR = re.compile(r"([a-z_]+)=(\S+)")
_IGNORE = re.compile(r"ignore(-file|-start|-end)?(?![\w-])\s*(?:\[([^\]]*)\])?\s*(.*)$")
_BLANK = re.compile(r"\s*(#.*|//.*)?$")

FOR_EVER = 1 << 30


class Ignore(NamedTuple):
    """One suppression: the rules that are silent on the lines `first` to `last`.

    `line` is the comment's own, `start` and `end` are the comment as offsets into the text.
    """

    rules: tuple[str, ...]
    first: int
    last: int
    line: int
    start: int
    end: int
    reason: str

    def silences(self, line: int, rule: str, name: str) -> str | None:
        """The word that silences a finding of a rule on a line; None where none does."""
        if not self.first <= line <= self.last:
            return None
        return next((word for word in self.rules if word in (rule, name)), None)


@dataclass(slots=True)
class Directives:
    """What the comments of one file say; `lines` tells on which line `gpu`, `gpus` and `nodes` stand."""

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    lines: dict[str, int] = field(default_factory=dict)
    ignores: list[Ignore] = field(default_factory=list)


def read_directives(document: Document) -> Directives:
    """The directives of a document.

    Raises SourceError with the comment's line for a directive that cannot be understood: a silent typo there
    would check against the wrong hardware, or hide what it should not.
    """
    directives = Directives()
    reader: _Ignores | None = None
    for comment in document.comments:
        mark = _MARK.match(comment.text)
        if mark is None or mark[1].startswith("job/"):
            continue
        text = mark[1]
        if text.startswith("ignore"):
            reader = reader or _Ignores(document, directives.ignores)
            reader.read(comment.line, text)
        else:
            _hardware(document.path, comment.line, text, directives)
    if reader is not None:
        reader.close()
    return directives


class _Ignores:
    """Reads the suppressions of one document, in the order of its lines."""

    def __init__(self, document: Document, found: list[Ignore]) -> None:
        self.path = document.path
        self.text = document.text
        self.lines = document.text.split("\n")
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line) + 1)
        self.found = found
        self.open: list[Ignore] = []

    def read(self, line: int, text: str) -> None:
        """One `ignore` comment."""
        match = _IGNORE.match(text)
        if match is None:
            raise SourceError(self.path, f"cannot understand the comment 'gpulint: {text.strip()}'", line, 1)
        kind, listed, reason = match[1] or "", match[2], match[3].strip()
        rules = tuple(dict.fromkeys(word.strip() for word in (listed or "").split(",") if word.strip()))
        if kind == "-end":
            self._end(line, rules)
            return
        if not rules:
            raise SourceError(self.path, f"gpulint: ignore{kind} needs the rules to suppress, [rule, ...]", line, 1)
        start, end = self._comment(line)
        if kind == "-file":
            self.found.append(Ignore(rules, 0, FOR_EVER, line, start, end, reason))
        elif kind == "-start":
            self.open.append(Ignore(rules, line, FOR_EVER, line, start, end, reason))
        else:
            first, last = self._covered(line)
            self.found.append(Ignore(rules, first, last, line, start, end, reason))

    def close(self) -> None:
        """Refuse what was started and not ended."""
        if self.open:
            raise SourceError(self.path, "gpulint: ignore-start without an ignore-end", self.open[-1].line, 1)

    def _end(self, line: int, rules: tuple[str, ...]) -> None:
        opened = next((item for item in reversed(self.open) if not rules or item.rules == rules), None)
        if opened is None:
            raise SourceError(self.path, "gpulint: ignore-end without an ignore-start", line, 1)
        self.open.remove(opened)
        self.found.append(opened._replace(last=line))

    def _covered(self, line: int) -> tuple[int, int]:
        """The lines a plain `ignore` speaks of: its own, or the next with content, continued lines included."""
        if not _BLANK.match(self.lines[line - 1]):
            return line, line
        first = line + 1
        while first <= len(self.lines) and _BLANK.match(self.lines[first - 1]):
            first += 1
        last = first
        while last < len(self.lines) and self.lines[last - 1].rstrip().endswith("\\"):
            last += 1
        return first, last

    def _comment(self, line: int) -> tuple[int, int]:
        written = self.lines[line - 1]
        mark = written.rfind("gpulint:")
        start = max(written.rfind("#", 0, mark), written.rfind("//", 0, mark))
        return self.offsets[line - 1] + max(start, 0), self.offsets[line - 1] + len(written.rstrip("\r\n"))


def _hardware(path: str, line: int, text: str, directives: Directives) -> None:
    rest = _PAIR.sub("", text).strip(" ,")
    pairs = _PAIR.findall(text)
    if rest or not pairs:
        raise SourceError(path, f"cannot understand the comment 'gpulint: {text.strip()}'", line, 1)
    for key, value in pairs:
        value = value.rstrip(",")
        if key == "gpu":
            directives.gpu = value
        elif key in ("gpus", "nodes"):
            if not value.isdigit() or int(value) < 1:
                raise SourceError(path, f"{key} in a gpulint comment must be a whole number, not {value!r}", line, 1)
            setattr(directives, key, int(value))
        else:
            raise SourceError(path, f"unknown key {key!r} in a gpulint comment; known keys: gpu, gpus, nodes", line, 1)
        directives.lines[key] = line
