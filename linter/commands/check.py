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
@click.option("--skip-unknown", is_flag=True, help="Skip named files of no known format instead of failing.")
def command(
    paths: tuple[str, ...], config: str | None, isolated: bool, output_format: str | None, **options: Any
) -> None:
    """Check config files, and the folders below which they lie.

    Exit code 0: nothing at or above --fail-on. 1: findings. 2: something could not be read or understood; the
    other files are still checked.
    """
    from ..rules.rule import RuleError

    settings = settings_of(config, isolated=isolated, options=options)
    try:
        report = check(paths, settings)
    except RuleError as error:
        raise Refused(str(error)) from None
    if not report.files:
        raise Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    _print_report(
        report, output_format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text"), settings
    )
    sys.exit(_exit_code(report, settings))


def _print_report(report: Report, output_format: str, settings: Settings) -> None:
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            complain(f"{file.path}{place}: {file.reason}")
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
