"""The lines of a file with carets under what is meant."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from ...source.places import lines as lines_of
from ..printable import printable, without_secrets
from ..style import Style

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...finding import Location

WIDTH = 120
"""Longer source lines are cut, since a caret under a wrapped line points nowhere."""


def frame(text: str, locations: list[Location], style: Style, message: str = "") -> list[str]:
    """The frame of `locations` in one file, first location primary (its label is `message`), others below.

    Lines come in file order with `...` between distant ones.
    """
    lines = lines_of(text)
    shown = sorted({(location.span.line, index) for index, location in enumerate(locations)})
    gutter = len(str(max(line for line, _ in shown)))
    out = [style.dim(" " * gutter + " |")]
    previous = 0
    for line, index in shown:
        if previous and line > previous + 1:
            out.append(style.dim("." * gutter + " |"))
        location = locations[index]
        source = lines[line - 1] if 0 < line <= len(lines) else ""
        cut = max(1, min(WIDTH, style.width - gutter - 3)) if style.width else WIDTH
        if line != previous:
            out.append(f"{style.dim(f'{line:>{gutter}} |')} {_visible(source)[:cut]}".rstrip())
        label = message if index == 0 else location.label
        mark = "^" if index == 0 else "-"
        paint = style.error if index == 0 else style.note
        out += _told(
            f"{style.dim(' ' * gutter + ' |')} ", source, location, mark, paint, label, style.width - gutter - 3, cut
        )
        previous = line
    out.append(style.dim(" " * gutter + " |"))
    return out


NARROWEST = 40
"""Columns for a message below which it stands under its carets instead of beside them."""


def _told(
    head: str, source: str, location: Location, mark: str, paint: Callable[[str], str], label: str, width: int, cut: int
) -> list[str]:
    """The carets and what is said of them, broken at `width` columns where that is more than 0; the line above them
    ends at `cut`."""
    carets, text = _under(source, location, mark, paint, cut), printable(label)
    beside = len(_under(source, location, mark, str, cut)) + 1
    if width <= 0 or beside + len(text) <= width:
        return [f"{head}{carets} {text}".rstrip()]
    indent = beside if width - beside >= NARROWEST else 0
    lines = wrap(text, max(width - indent, 20))
    if not indent:
        return [head + carets, *(head + line for line in lines)]
    return [f"{head}{carets} {lines[0]}", *(head + " " * indent + line for line in lines[1:])]


def _visible(source: str) -> str:
    return printable(without_secrets(source))


def _under(source: str, location: Location, mark: str, paint: Callable[[str], str], cut: int) -> str:
    """The carets; what lies behind the cut of its line is marked by one caret at the last column that is shown."""
    span = location.span
    start = min(span.column - 1, len(source))
    end = span.end_column - 1 if span.end_line == span.line else len(source.rstrip())
    blanks = len(_visible(source[:start]))
    width = max(1, len(printable(source[start:end])))
    if blanks >= cut and len(_visible(source)) > cut:
        blanks, width = cut - 1, 1
    return " " * blanks + paint(mark * min(width, max(1, cut - blanks)))
