"""Offsets into a text and the positions of the Language Server Protocol.

A position is a line from 0 and the code units before it on that line: UTF-16 ones unless client and server agreed on
another encoding. Offsets count characters of the whole text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..source.places import Places

if TYPE_CHECKING:
    from ..source.node import Span

UNIT_BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
"""Bytes of a code unit."""


class Lines:
    """The lines of one text, as the protocol counts them."""

    __slots__ = ("encoding", "starts", "text")

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self.encoding = encoding
        self.starts = [0, *Places(text).starts[1:]]

    def position(self, offset: int) -> tuple[int, int]:
        """The line and code unit of an offset; of the text's end for one beyond it."""
        from bisect import bisect_right

        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.starts, offset) - 1
        return line, self._units(self.text[self.starts[line] : offset])

    def offset(self, line: int, unit: int) -> int:
        """The offset of a position; a unit beyond the line is its end, one within a character the character's start."""
        if line >= len(self.starts):
            return len(self.text)
        written = self.line(line)
        low, high = 0, len(written)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._units(written[:middle]) <= unit else (low, middle - 1)
        return self.starts[line] + low

    def line(self, number: int) -> str:
        """The text of a line without its break."""
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[number] : end].rstrip("\r\n")

    def of_span(self, span: Span) -> tuple[int, int]:
        """The start and end offset of a span, from its lines and columns."""
        return self._place(span.line, span.column), self._place(span.end_line, span.end_column)

    def _place(self, line: int, column: int) -> int:
        if line > len(self.starts):
            return len(self.text)
        first = self.starts[line - 1]
        if line == 1 and self.text.startswith("\ufeff"):
            first = 1
        return min(first + max(column - 1, 0), len(self.text))

    def _units(self, text: str) -> int:
        if text.isascii():
            return len(text)
        return (
            len(text.encode(f"{self.encoding}-le" if self.encoding != "utf-8" else "utf-8", "surrogatepass"))
            // (UNIT_BYTES[self.encoding])
        )
