"""From character offsets to lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from .node import Span

_LINE_BREAK = re.compile(r"\r\n?|\n")

BOM = "\ufeff"


class Places:
    r"""The lines of a text. Lines end at `\n`, `\r\n` or `\r`, as editors and the LSP count them.

    A byte order mark is part of the text and of every offset, but takes no column.
    """

    __slots__ = ("starts",)

    def __init__(self, text: str) -> None:
        self.starts = [1 if text.startswith(BOM) else 0]
        self.starts.extend(match.end() for match in _LINE_BREAK.finditer(text))

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset, both from 1."""
        line = bisect_right(self.starts, offset) or 1
        return line, max(offset - self.starts[line - 1], 0) + 1

    def span(self, start: int, end: int) -> Span:
        """The span of `text[start:end]`."""
        starts = self.starts
        line = bisect_right(starts, start) or 1
        first = starts[line - 1]
        if line == len(starts) or end < starts[line]:
            return Span(line, max(start - first, 0) + 1, line, max(end - first, 0) + 1, start, end)
        end_line = bisect_right(starts, end)
        return Span(line, max(start - first, 0) + 1, end_line, end - starts[end_line - 1] + 1, start, end)


def lines(text: str) -> list[str]:
    """The lines of a text without their breaks, numbered as spans number them (`lines(text)[span.line - 1]`)."""
    return _LINE_BREAK.split(text.removeprefix(BOM))


@lru_cache(maxsize=4)
def places_of(text: str) -> Places:
    """The lines of a text that is asked for again and again: a launcher's, once for each command in it."""
    return Places(text)
