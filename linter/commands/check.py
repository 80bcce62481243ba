"""`gpulint check`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import check
from ..report.registry import FORMATS
from ..settings import FAIL_ON, Settings
from .console import COULD_NOT, Refused, complain
from .options import hardware_options, layers_of, selection_options
from .outputs import Outputs, complaints

if TYPE_CHECKING:
    from ..finding import Report
    from ..fixing import Fixes
    from ..settings_layers import Layers


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
@click.option("--fix", "fixing", is_flag=True, help="Apply the safe fixes and report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="Count fixes in that change what the job computes.")
@click.option("--fix-only", is_flag=True, help="Apply fixes and report nothing; implies --fix.")
@click.option("--diff", "diffing", is_flag=True, help="Print the fixes as a patch, write nothing; implies --fix-only.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of no known format instead of failing.")
def command(
    paths: tuple[str, ...],
    config: str | None,
    isolated: bool,
    formats: tuple[str, ...],
    files: tuple[str, ...],
    write_baseline: str | None,
    add_ignore: str | None,
    fixing: bool,
    unsafe_fixes: bool,
    fix_only: bool,
    diffing: bool,
    **options: Any,
) -> None:
    """Check config files, and the folders below which they lie.

    Exit code 0: nothing at or above --fail-on is left. 1: findings; with --diff, that there is something to fix.
    2: something could not be read, understood or written; the other files are still checked.
    """
    from ..rules.rule import RuleError
    from ..settings import SettingsError

    outputs = Outputs.chosen(formats, files)
    layers = layers_of(config, isolated=isolated, options={**options, **({"baseline": None} if write_baseline else {})})
    fixes = None
    try:
        if fixing or fix_only or diffing:
            from ..fixing import fix

            fixes = fix(paths, layers, unsafe=unsafe_fixes)
        report = fixes.report if fixes is not None else check(paths, layers)
    except (RuleError, SettingsError) as error:
        raise Refused(str(error)) from None
    if not report.files:
        raise Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    settings = layers.of(os.curdir)
    if write_baseline:
        _write_baseline(report, write_baseline)
    if add_ignore is not None:
        _add_ignores(report, add_ignore)
    if fixes is not None:
        mode = "diff" if diffing else "fix-only" if fix_only else "fix"
        sys.exit(_fix(fixes, mode, outputs, layers, unsafe=unsafe_fixes))
    outputs.write(report, layers)
    if outputs.for_people:
        _offer(report)
    sys.exit(_exit_code(report, settings))


def _fix(fixes: Fixes, mode: str, outputs: Outputs, layers: Layers, *, unsafe: bool) -> int:
    """Write or show the fixes, then what is left; the exit code."""
    from ..report.fixes import diff, totals

    failed = False
    if mode == "fix":
        failed = _write(fixes)
        outputs.write(fixes.report, layers)
    else:
        failed = complaints(fixes.report)
        if mode == "diff":
            click.echo(diff(fixes.changes), nl=False)
        else:
            failed = _write(fixes) or failed
    _tell_held(fixes)
    click.echo(
        totals(fixes, unsafe=unsafe, written=mode != "diff"),
        err=mode == "diff" or (mode == "fix" and not outputs.for_people),
    )
    if failed:
        return COULD_NOT
    if mode == "fix":
        return _exit_code(fixes.report, layers.of(os.curdir))
    return int(mode == "diff" and bool(fixes.changes))


def _write(fixes: Fixes) -> bool:
    """Write what the fixes changed; whether something could not be written."""
    from ..fixing import write

    failed = write(fixes)
    for path, reason in failed:
        complain(f"{path}: not written: {reason}")
    return bool(failed)


def _tell_held(fixes: Fixes) -> None:
    """Say on standard error which fixes were held back, and why."""
    from ..report.printable import printable

    for finding, reason in fixes.held:
        span = finding.location.span
        place = f"{finding.location.path}:{span.line}:{span.column}"
        click.echo(printable(f"{place}: {finding.rule} is not fixed: {reason}"), err=True)


def _offer(report: Report) -> None:
    """Say what --fix could do."""
    from ..report.fixes import offer

    text = offer(report.findings)
    if text:
        click.echo(text)


def _write_baseline(report: Report, path: str) -> NoReturn:
    from ..baseline import text

    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text(report, path))
    except OSError as error:
        raise Refused(f"{path}: cannot write the baseline: {error.strerror}") from None
    number = _counted(len(report.findings), "finding")
    click.echo(f"{number} written to {path}; use --baseline {path}, or baseline in the settings")
    sys.exit(COULD_NOT if complaints(report) else 0)


def _add_ignores(report: Report, reason: str) -> NoReturn:
    from ..ignoring import add_ignores

    added = add_ignores(report, reason)
    for path, why in added.refused:
        complain(f"{path}: {why}")
    click.echo(f"{_counted(added.comments, 'comment')} written to {_counted(added.files, 'file')}")
    sys.exit(COULD_NOT if complaints(report) or added.refused else 0)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _exit_code(report: Report, settings: Settings) -> int:
    if report.count("error"):
        return COULD_NOT
    serious = FAIL_ON[: FAIL_ON.index(settings.fail_on) + 1] if settings.fail_on != "never" else ()
    return int(any(finding.severity in serious for finding in report.findings))
