"""Where the findings of a run go, and in which formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import click

from .. import __version__
from .console import Refused, colour, complain

if TYPE_CHECKING:
    from ..finding import Report
    from ..settings_layers import Layers


class Outputs(NamedTuple):
    """Formats, and the files that the last of them go to; what is left goes to standard output."""

    formats: tuple[str, ...]
    files: tuple[str, ...]

    @classmethod
    def chosen(cls, formats: tuple[str, ...], files: tuple[str, ...]) -> Outputs:
        """What the options say. Refuses more files than formats, and two formats for standard output."""
        if not formats:
            here = os.environ
            chosen = "github" if here.get("GITHUB_ACTIONS") == "true" else "azure" if here.get("TF_BUILD") else "full"
            formats = (chosen,) * max(1, len(files))
        if len(files) > len(formats):
            raise Refused("each --output-file needs an --output-format of its own")
        if len(formats) - len(files) > 1:
            raise Refused("only one --output-format can go to standard output; the others need an --output-file")
        return cls(formats, files)

    @property
    def for_people(self) -> bool:
        """Whether standard output is read by people."""
        return len(self.formats) > len(self.files) and self.formats[0] in ("full", "text")

    def write(self, report: Report, layers: Layers) -> None:
        """Print the report, or write it to the files."""
        from ..overview import cards
        from ..report.registry import Context, render
        from ..report.summary import summary
        from ..rules.load import rule_texts

        complaints(report)
        settings = layers.of(os.curdir)
        context = Context(__version__, False, lambda: rule_texts(settings), lambda: cards(report, layers))
        targets = [None] * (len(self.formats) - len(self.files)) + [*self.files]
        for name, file in zip(self.formats, targets, strict=True):
            text = render(name, report, context._replace(colour=colour() and file is None))
            if file is None:
                click.echo(text, nl=bool(text))
                if name in ("github", "azure"):
                    click.echo(summary(report))
            else:
                _write(file, text)


def _write(file: str, text: str) -> None:
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text + "\n" if text else "")
    except OSError as error:
        raise Refused(f"{file}: cannot be written: {error.strerror}") from None


def complaints(report: Report) -> bool:
    """Say on standard error which files could not be checked; whether there were any."""
    failed = False
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            failed = complain(f"{file.path}{place}: {file.reason}")
    return failed
