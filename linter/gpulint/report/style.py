"""Colour, or none."""

from __future__ import annotations

from typing import NamedTuple


class Style(NamedTuple):
    """ANSI colours and the width of a terminal; `Style()` writes plain text and breaks no line.

    With `links`, places are links to the file (OSC 8).
    """

    colour: bool = False
    width: int = 0
    links: bool = False

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def error(self, text: str) -> str:
        """Bold red."""
        return self._paint("1;31", text)

    def warning(self, text: str) -> str:
        """Bold yellow."""
        return self._paint("1;33", text)

    def note(self, text: str) -> str:
        """Cyan."""
        return self._paint("36", text)

    def good(self, text: str) -> str:
        """Green."""
        return self._paint("32", text)

    def bold(self, text: str) -> str:
        """Bold."""
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        """Faint."""
        return self._paint("2", text)

    def place(self, text: str, path: str) -> str:
        """A place in a file."""
        shown = self.bold(text)
        if not self.links:
            return shown
        from pathlib import Path

        return f"\x1b]8;;{Path(path).absolute().as_uri()}\x1b\\{shown}\x1b]8;;\x1b\\"

    def severity(self, severity: str, text: str) -> str:
        """The colour of a severity or a verdict."""
        paint = {
            "error": self.error, "exceeds": self.error, "warning": self.warning, "tight": self.warning,
            "fits": self.good,
        }.get(severity, self.note)  # fmt: skip
        return paint(text)
