"""How far a long run has come, on a terminal."""

from __future__ import annotations

import sys
import time

import click

PATIENCE = 1.0
"""Seconds before which nothing is shown."""


class Progress:
    """Counts files on standard error while they are checked; silent where that is no terminal."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` files are checked."""
        if sys.stderr.isatty() and time.monotonic() - self.begun > PATIENCE:
            self.shown = True
            click.echo(f"\r{done} of {total} files checked", err=True, nl=False)

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)
