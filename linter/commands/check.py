"""`gpulint check`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import __version__, check
from ..report.registry import FORMATS
from ..settings import FAIL_ON, Settings
from .console import COULD_NOT, Refused, colour, complain
from .options import hardware_options, layers_of, selection_options

if TYPE_CHECKING:
    from ..finding import Report


@click.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@hardware_options
@selection_options
@click.option(
    "--output-format",
    "formats",
    multiple=True,
    type=click.Choice([*FORMATS, "text"]),
    metavar="FORMAT",
    help=f"How findings are printed: {', '.join(FORMATS)}; repeatable. [default: full; github or azure in their CI]",
)
@click.option(
    "--output-file",
    "files",
    multiple=True,
    metavar="FILE",
    help="Where the last --output-format goes instead of standard output; the last but one, and so on; repeatable.",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Least severity that makes the exit code 1. [default: error]"
)
@click.option("--baseline", metavar="FILE", help="Do not report the findings that this file lists.")
@click.option("--write-baseline", metavar="FILE", help="Write the findings to this file and end.")
@click.option("--add-ignore", metavar="REASON", help="Write a comment that silences each finding, and end.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of no known format instead of failing.")
def command(
    paths: tuple[str, ...],
    config: str | None,
    isolated: bool,
    formats: tuple[str, ...],
    files: tuple[str, ...],
    write_baseline: str | None,
    add_ignore: str | None,
    **options: Any,
) -> None:
    """Check config files, and the folders below which they lie.

    Exit code 0: nothing at or above --fail-on. 1: findings. 2: something could not be read or understood; the
    other files are still checked.
    """
    from ..rules.rule import RuleError
    from ..settings import SettingsError

    formats = _formats(formats, files)
    layers = layers_of(config, isolated=isolated, options={**options, **({"baseline": None} if write_baseline else {})})
    try:
        report = check(paths, layers)
    except (RuleError, SettingsError) as error:
        raise Refused(str(error)) from None
    if not report.files:
        raise Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    settings = layers.of(os.curdir)
    if write_baseline:
        _write_baseline(report, write_baseline)
    if add_ignore is not None:
        _add_ignores(report, add_ignore)
    _print_report(report, formats, files, settings)
    sys.exit(_exit_code(report, settings))


def _write_baseline(report: Report, path: str) -> NoReturn:
    from ..baseline import text

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text(report, path))
    except OSError as error:
        raise Refused(f"{path}: cannot write the baseline: {error.strerror}") from None
    number = _counted(len(report.findings), "finding")
    click.echo(f"{number} written to {path}; use --baseline {path}, or baseline in the settings")
    sys.exit(COULD_NOT if _complaints(report) else 0)


def _add_ignores(report: Report, reason: str) -> NoReturn:
    from ..ignoring import add_ignores

    added = add_ignores(report, reason)
    for path, why in added.refused:
        complain(f"{path}: {why}")
    click.echo(f"{_counted(added.comments, 'comment')} written to {_counted(added.files, 'file')}")
    sys.exit(COULD_NOT if _complaints(report) or added.refused else 0)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _complaints(report: Report) -> bool:
    """Say on standard error which files could not be checked; whether there were any."""
    failed = False
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            failed = complain(f"{file.path}{place}: {file.reason}")
    return failed


def _print_report(report: Report, formats: tuple[str, ...], files: tuple[str, ...], settings: Settings) -> None:
    """Each format in turn; the last ones go to the files, what is left to standard output."""
    from ..report.registry import render
    from ..report.summary import summary
    from ..rules.load import rule_texts

    _complaints(report)
    targets = [None] * (len(formats) - len(files)) + [*files]
    for name, file in zip(formats, targets, strict=True):
        text = render(
            name,
            report,
            colour=colour() and file is None,
            version=__version__,
            rules=lambda: rule_texts(settings),
        )
        if file is None:
            click.echo(text, nl=bool(text))
            if name in ("github", "azure"):
                click.echo(summary(report))
            continue
        try:
            with open(file, "w", encoding="utf-8") as out:
                out.write(text + "\n" if text else "")
        except OSError as error:
            raise Refused(f"{file}: cannot be written: {error.strerror}") from None


def _formats(formats: tuple[str, ...], files: tuple[str, ...]) -> tuple[str, ...]:
    """The formats to print. Refuses more files than formats, and two formats for standard output."""
    if not formats:
        here = os.environ
        chosen = "github" if here.get("GITHUB_ACTIONS") == "true" else "azure" if here.get("TF_BUILD") else "full"
        formats = (chosen,) * max(1, len(files))
    if len(files) > len(formats):
        raise Refused("each --output-file needs an --output-format of its own")
    if len(formats) - len(files) > 1:
        raise Refused("only one --output-format can go to standard output; the others need an --output-file")
    return formats


def _exit_code(report: Report, settings: Settings) -> int:
    if report.count("error"):
        return COULD_NOT
    serious = FAIL_ON[: FAIL_ON.index(settings.fail_on) + 1] if settings.fail_on != "never" else ()
    return int(any(finding.severity in serious for finding in report.findings))
