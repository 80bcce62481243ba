"""What commands say to people: refusals, complaints, whether to use colour."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..report.style import Style

COULD_NOT = 2
"""Exit code for what could not be done: unreadable files, unknown GPUs, bad settings."""


class Refused(click.ClickException):
    """A one-line message and exit code 2."""

    exit_code = COULD_NOT

    def show(self, file: Any = None) -> None:
        """Print the message cleaned of control characters."""
        from ..report.printable import printable

        click.echo(f"gpulint: {printable(self.message)}", err=True, file=file)


def complain(message: str) -> bool:
    """Print one line about what could not be done; True, for `failed = complain(...)`."""
    from ..report.printable import printable

    click.echo(f"gpulint: {printable(message)}", err=True)
    return True


def colour() -> bool:
    """Whether standard output takes colour: what --color or the environment says, else whether it is a terminal."""
    wanted = click.get_current_context().color
    return sys.stdout.isatty() if wanted is None else wanted


def terminal() -> Style:
    """What standard output can show: colour, and on a terminal its width and links."""
    import shutil

    from ..report.style import Style

    here = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if here or os.environ.get("COLUMNS") else 0
    coloured = colour()
    return Style(coloured, width, links=here and coloured)


def wanted_colour(word: str) -> bool | None:
    """What `--color` asks for, NO_COLOR and FORCE_COLOR where it is `auto`; None to look at the terminal."""
    if word != "auto":
        return word == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None
