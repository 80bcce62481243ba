"""A mutant: a file with one piece of its text replaced."""

from __future__ import annotations

import difflib
from typing import NamedTuple


class Mutant(NamedTuple):
    """`new` in place of the UTF-8 bytes `start` to `end` of the file `path`, in the function `where` ("" outside)."""

    path: str
    operator: str
    where: str
    start: int
    end: int
    new: str

    def applied(self, text: str) -> str:
        """The file's text with the mistake in it."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def difference(self, text: str) -> str:
        """The lines that differ, `-` before the old and `+` before the new ones, under the place."""
        lines = difflib.unified_diff(text.splitlines(), self.applied(text).splitlines(), lineterm="", n=0)
        changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
        number = text.encode()[: self.start].count(b"\n") + 1
        return "\n".join([f"{self.path}:{number} {self.where} ({self.operator})", *changed])
