"""`gpulint check`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .. import __version__, check
from ..settings import FAIL_ON, Settings
from .console import COULD_NOT, Refused, colour, complain
from .options import hardware_options, settings_of

if TYPE_CHECKING:
    from ..finding import Report
    from ..fixing import Fixes


@click.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@hardware_options
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    help="How findings are printed. [default: github under GitHub Actions, else text]",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Least severity that makes the exit code 1. [default: error]"
)
@click.option("--select", multiple=True, metavar="RULE", help="Run only these rules (id, prefix or name); repeatable.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave these rules out; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave these paths out; repeatable.")
@click.option("--rules", multiple=True, metavar="DIR", help="Folder with rule files of your own; repeatable.")
@click.option("--preview", is_flag=True, default=None, help="Also run rules that are in preview.")
@click.option("--fix", "fixing", is_flag=True, help="Apply the safe fixes and report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="Count fixes in that change what the job computes.")
@click.option("--fix-only", is_flag=True, help="Apply fixes and report nothing; implies --fix.")
@click.option("--diff", "diffing", is_flag=True, help="Print the fixes as a patch, write nothing; implies --fix-only.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of no known format instead of failing.")
def command(
    paths: tuple[str, ...],
    config: str | None,
    isolated: bool,
    output_format: str | None,
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

    settings = settings_of(config, isolated=isolated, options=options)
    output_format = output_format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text")
    fixes = None
    try:
        if fixing or fix_only or diffing:
            from ..fixing import fix

            fixes = fix(paths, settings, unsafe=unsafe_fixes)
        report = fixes.report if fixes is not None else check(paths, settings)
    except RuleError as error:
        raise Refused(str(error)) from None
    if not report.files:
        raise Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    failed = _print_errors(report)
    if fixes is None:
        _print_report(report, output_format, settings)
        _offer(report, output_format)
        sys.exit(_exit_code(report, settings))
    if diffing:
        from ..report.fixes import diff

        click.echo(diff(fixes.changes), nl=False)
    else:
        failed = _write(fixes) or failed
        if not fix_only:
            _print_report(report, output_format, settings)
    _print_fixes(fixes, unsafe=unsafe_fixes, written=not diffing, aside=diffing or output_format != "text")
    if failed:
        sys.exit(COULD_NOT)
    sys.exit(int(bool(fixes.changes)) if diffing else 0 if fix_only else _exit_code(report, settings))


def _write(fixes: Fixes) -> bool:
    """Write what the fixes changed; whether something could not be written."""
    from ..fixing import write

    failed = write(fixes)
    for path, reason in failed:
        complain(f"{path}: not written: {reason}")
    return bool(failed)


def _print_fixes(fixes: Fixes, *, unsafe: bool, written: bool, aside: bool) -> None:
    """What was held back and why, and the totals: on standard error where standard output is for something else."""
    from ..report.fixes import totals
    from ..report.printable import printable

    for finding, reason in fixes.held:
        span = finding.location.span
        place = f"{finding.location.path}:{span.line}:{span.column}"
        click.echo(printable(f"{place}: {finding.rule} is not fixed: {reason}"), err=True)
    click.echo(totals(fixes, unsafe=unsafe, written=written), err=aside)


def _offer(report: Report, output_format: str) -> None:
    """Say what --fix could do, where people read it."""
    if output_format == "text" and report.findings:
        from ..report.fixes import offer

        text = offer(report.findings)
        if text:
            click.echo(text)


def _print_errors(report: Report) -> bool:
    """One line for each file that could not be checked; whether there was one."""
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            complain(f"{file.path}{place}: {file.reason}")
    return bool(report.count("error"))


def _print_report(report: Report, output_format: str, settings: Settings) -> None:
    if output_format == "json":
        from ..report import json_report

        click.echo(json_report.render(report))
    elif output_format == "sarif":
        from ..report import sarif
        from ..rules.load import rule_texts

        click.echo(sarif.render(report, rule_texts(settings), __version__))
    elif output_format == "github":
        from ..report import github, text

        click.echo("\n".join(filter(None, (github.render(report), text.summary(report)))))
    else:
        from ..report import text

        click.echo(text.render(report, colour=colour()))


def _exit_code(report: Report, settings: Settings) -> int:
    if report.count("error"):
        return COULD_NOT
    serious = FAIL_ON[: FAIL_ON.index(settings.fail_on) + 1] if settings.fail_on != "never" else ()
    return int(any(finding.severity in serious for finding in report.findings))
