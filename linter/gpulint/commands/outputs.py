"""Where the findings of a run go, and in which formats."""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import click

from .. import __version__
from ..settings.settings import FAIL_ON
from .console import COULD_NOT, Refused, complain, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..finding import Report
    from ..settings.layers import Layers
    from ..settings.settings import Settings


_ORDER = f"{__name__}.order"


class InOrder(click.Command):
    """A command that keeps the order in which its options came."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as any command does; `named_order` then tells the order."""
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = tuple(parameter.name or "" for parameter in order)
        return super().parse_args(ctx, args)


def named_order() -> tuple[str, ...]:
    """The options of the command line, each as often as it was given."""
    order: tuple[str, ...] = click.get_current_context().meta.get(_ORDER, ())
    return order


class Outputs(NamedTuple):
    """Formats, and the files that the last of them go to in order; one that is left goes to standard output.

    With `once`, outputs for people tell a fact of many files once, and standard output fits a screen.
    """

    formats: tuple[str, ...]
    files: tuple[str, ...]
    statistics: bool = False
    quiet: bool = False
    verbose: bool = False
    once: bool = False

    @classmethod
    def chosen(
        cls, formats: tuple[str, ...], files: tuple[str, ...], named: Sequence[str] = (), **ways: bool
    ) -> Outputs:
        """What the options say; `named` is their order. Refuses more files than formats, and two formats for standard
        output.
        """
        if not formats:
            here = os.environ
            chosen = "github" if here.get("GITHUB_ACTIONS") == "true" else "azure" if here.get("TF_BUILD") else "full"
            formats = (chosen,) * max(1, len(files))
        if len(files) > len(formats):
            raise Refused("each --output-file needs its own --output-format")
        if len(formats) - len(files) > 1:
            raise Refused("only one --output-format can go to standard output; the others need an --output-file")
        return cls(_paired(formats, files, named), files, **ways)

    @property
    def for_people(self) -> bool:
        """Whether standard output is read by people, who want more than the findings."""
        shown = len(self.formats) > len(self.files) and self.formats[0] in ("full", "text")
        return shown and not self.quiet and not self.statistics

    def write(self, report: Report, layers: Layers) -> None:
        """Print the report, or write it to the files."""
        from ..report.problems import SCREEN
        from ..report.registry import Context, render
        from ..report.summary import summary
        from ..report.text import statistics
        from ..rules.load import rule_texts
        from ..run.overview import cards

        complaints(report)
        if self.verbose:
            _skipped(report)
            _unchecked(report)
        elif self.for_people and not report.count("checked"):
            _skipped(report, FEW_SKIPPED)
        settings = layers.of(os.curdir)
        context = Context(
            __version__, False, self.quiet, 0, False, lambda: rule_texts(settings), lambda: cards(report, layers),
            self.once,
        )  # fmt: skip
        shown = len(self.formats) - len(self.files)
        if self.statistics:
            as_json = self.formats[:shown] == ("json",)
            click.echo(statistics.as_json(report) if as_json else statistics.render(report, terminal(), once=self.once))
        for name in self.formats[:shown] if not self.statistics else ():
            screen = {**terminal()._asdict(), "most": SCREEN if self.once else None}
            text = render(name, report, context._replace(**screen))
            click.echo(text, nl=bool(text))
            if name in ("github", "azure") and not self.quiet:
                click.echo(summary(report, once=self.once))
        for name, file in zip(self.formats[shown:], self.files, strict=True):
            write_file(file, render(name, report, context._replace(once=self.once and name not in WHOLE)))


def _paired(formats: tuple[str, ...], files: tuple[str, ...], named: Sequence[str]) -> tuple[str, ...]:
    """Formats without a file first, then those of the files. Files that stand together take the formats before them;
    where those are too few, or were not named on the command line, they take the last that are left.
    """
    taken: dict[int, int] = {}
    waiting: list[int] = []
    format_, file = 0, 0
    for name, run in groupby(word for word in named if word in ("formats", "files")):
        count = len(list(run))
        if name == "formats":
            waiting += range(format_, format_ + count)
            format_ += count
            continue
        if count <= len(waiting):
            taken.update(zip(range(file, file + count), waiting[-count:], strict=True))
            del waiting[-count:]
        file += count
    rest = [place for place in range(len(files)) if place not in taken]
    left = [place for place in range(len(formats)) if place not in taken.values()]
    taken.update(zip(rest, left[len(left) - len(rest) :], strict=True))
    shown = [formats[place] for place in range(len(formats)) if place not in taken.values()]
    return (*shown, *(formats[taken[place]] for place in range(len(files))))


def write_file(file: str, text: str) -> None:
    """Write an output; refuses a file that cannot be written."""
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text if text.endswith("\n") or not text else f"{text}\n")
    except OSError as error:
        raise Refused(f"{file}: cannot be written: {error.strerror}") from None


WHOLE = ("full", "text", "grouped")
"""Formats that a file gets with every finding, since it is no screen."""

FEW_SKIPPED = 5
"""Skipped files that are named where nothing else was checked."""


def _skipped(report: Report, most: int | None = None) -> None:
    skipped = [file for file in report.files if file.status == "skipped"]
    for file in skipped[:most]:
        complain(f"{file.path}: skipped: {file.reason}")
    if skipped[most:] and most is not None:
        complain(f"{len(skipped) - most} more skipped; -v lists them")


def _unchecked(report: Report) -> None:
    """Each job whose memory was not checked, with what would settle it."""
    for file in report.files:
        for job in file.jobs:
            if job.unchecked:
                part = f" ({job.part})" if job.part else ""
                complain(f"{file.path}{part}: {job.unchecked}")


def complaints(report: Report) -> bool:
    """Say on standard error which files could not be checked; whether there were any."""
    failed = False
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            failed = complain(f"{file.path}{place}: {file.reason}")
    return failed


def exit_code(report: Report, settings: Settings) -> int:
    """0, 1 where something is as serious as `--fail-on` or lacks a verdict that is required, 2 where something could
    not be read."""
    if settings.require_verdict and not report.count("error") and report.not_checked():
        _unchecked(report)
        return 1
    if report.count("error"):
        return COULD_NOT
    serious = FAIL_ON[: FAIL_ON.index(settings.fail_on) + 1] if settings.fail_on != "never" else ()
    return int(any(finding.severity in serious for finding in report.findings))
