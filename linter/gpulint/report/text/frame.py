"""The lines of a file with carets under what is meant."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from ...source.places import lines as lines_of
from ..masking import without_secrets
from ..printable import printable
from ..style import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...finding import Location

WIDTH = 120
"""Of longer source lines a part is shown, since a caret under a wrapped line points nowhere."""

CUT = "..."
"""Stands for what is left out of a line, before and behind the part that is shown."""


def frame(text: str, locations: list[Location], style: Style, message: str = "", severity: str = "error") -> list[str]:
    """The frame of `locations` in one file, first location primary (its label is `message`), others below.

    Lines come in file order with `...` between distant ones. A line that is too long is shown around what is meant,
    once more for another place of it that is far away.
    """
    lines = lines_of(text)
    shown = sorted({(location.span.line, index) for index, location in enumerate(locations)})
    gutter = len(str(max(line for line, _ in shown)))
    room = style.width - gutter - 3
    out = [style.dim(" " * gutter + " |")]
    previous, view = 0, None
    for line, index in shown:
        if previous and line > previous + 1:
            out.append(style.dim("." * gutter + " |"))
        location = locations[index]
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        start, end = _columns(source, location)
        if line != previous or view is None or not view.first <= start < view.last:
            before = lines[line - 2] if 1 < line <= len(lines) else ""
            visible = printable(without_secrets(source, before))
            view = _view(visible, start, end, min(WIDTH, max(room, NARROWEST)) if style.width else WIDTH)
            out.append(f"{style.dim(f'{line:>{gutter}} |')} {view.text}".rstrip())
        paint = (lambda mark: style.severity(severity, mark)) if index == 0 else style.note
        blanks, width = view.under(start, end)
        label = message if index == 0 else location.label
        head = f"{style.dim(' ' * gutter + ' |')} "
        out += _told(head, blanks, ("^" if index == 0 else "-") * width, paint, label, room)
        previous = line
    out.append(style.dim(" " * gutter + " |"))
    return out


NARROWEST = 40
"""Columns below which a message stands under its carets instead of beside them; the least that is shown of a line."""


class _View(NamedTuple):
    """The part of a line that is shown: columns `first` to `last` of it, `shift` columns to the right."""

    text: str
    first: int
    last: int
    shift: int

    def under(self, start: int, end: int) -> tuple[int, int]:
        """Blanks before the carets of columns `start` to `end`, and the number of carets."""
        return self.shift + start - self.first, max(1, min(end, self.last) - start)


def _view(visible: str, start: int, end: int, most: int) -> _View:
    """The part of at most `most` columns that shows `start` to `end`: the beginning of the line where that does, else
    with as much before it as behind it, and its own beginning where it is too long itself."""
    if len(visible) <= most:
        return _View(visible, 0, max(most, end, start + 1), 0)
    if end <= most - len(CUT):
        last = most - len(CUT)
        return _View(visible[:last] + CUT, 0, last, 0)
    inner = most - 2 * len(CUT)
    first = max(start - max((inner - (end - start)) // 2, inner // 4), 0)
    if first + inner + len(CUT) >= len(visible):
        last = max(len(visible), start + 1)
        first = min(last - inner - len(CUT), start)
        return _View(CUT + visible[first:], first, last, len(CUT))
    return _View(CUT + visible[first : first + inner] + CUT, first, first + inner, len(CUT))


def _columns(source: str, location: Location) -> tuple[int, int]:
    """Where a place begins and ends in the line as it is shown."""
    span = location.span
    start = min(span.column - 1, len(source))
    end = span.end_column - 1 if span.end_line == span.line else len(source.rstrip())
    before = len(printable(source[:start]))
    return before, before + max(1, len(printable(source[start:end])))


def _told(head: str, blanks: int, marks: str, paint: Callable[[str], str], label: str, width: int) -> list[str]:
    """The carets and what is said of them, broken at `width` columns where that is more than 0."""
    carets, text = " " * blanks + paint(marks), printable(label)
    beside = blanks + len(marks) + 1
    if width <= 0 or beside + len(text) <= width:
        return [f"{head}{carets} {text}".rstrip()]
    indent = beside if width - beside >= NARROWEST else 0
    lines = wrap(text, max(width - indent, 20))
    if not indent:
        return [head + carets, *(head + line for line in lines)]
    return [f"{head}{carets} {lines[0]}", *(head + " " * indent + line for line in lines[1:])]
