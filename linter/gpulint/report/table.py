"""Tables as text: columns as wide as their widest cell, or what rich makes of them where words have to wrap.

Piped output is never wrapped to a terminal and does not change with rich's releases. rich is imported with the first
table that is too wide for its terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .printable import printable
from .style import Style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

GAP = 2
"""Blanks between columns."""

PLAIN = Style()


def table(head: Sequence[str], rows: Sequence[Sequence[str]], style: Style = PLAIN) -> str:
    """A table under its head, in the width of a terminal if `style` has one."""
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if style.width and sum(widths) + GAP * (len(widths) - 1) > style.width:
        lines = wrapped(cells, [0] * len(widths), style.width)
        return "\n".join([style.bold(lines[0]), *lines[1:]])
    first, *others = (
        (" " * GAP).join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )
    return "\n".join([style.bold(first), *others])


def wrapped(rows: Sequence[Sequence[str]], widths: Sequence[int], room: int, *, indent: int = 0) -> list[str]:
    """Lines of columns of these widths, 0 for what the cells need and `room` allows.

    Cells are printable, and may hold ANSI colours. A first column without a width holds names: they stay unbroken where
    they leave half of the room to the others.
    """
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    made = _columns(widths, names_fit=max(len(row[0]) for row in rows) <= room // 2)
    for row in rows:
        made.add_row(*(Text.from_ansi(cell) if "\x1b" in cell else Text(cell) for cell in row))
    coloured = any("\x1b" in cell for row in rows for cell in row)
    console = Console(
        file=out, width=room - indent + GAP, color_system="standard" if coloured else None, force_terminal=coloured,
        legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(made, end="")
    margin = " " * indent
    return [f"{margin}{line}".rstrip() for line in out.getvalue().splitlines()]


def _columns(widths: Sequence[int], *, names_fit: bool) -> Table:
    from rich.table import Table

    made = Table(box=None, show_header=False, padding=(0, GAP, 0, 0))  # the last gap is stripped
    for number, width in enumerate(widths):
        made.add_column(width=width or None, overflow="fold", no_wrap=names_fit and not number and not width)
    return made
