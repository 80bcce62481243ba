"""`gpulint rules`."""

from __future__ import annotations

import os
import sys

import click

from .console import COULD_NOT, Refused, terminal


@click.group("rules", invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]...")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--rules", multiple=True, metavar="DIR", help="Directory with your own rule files; repeatable.")
@click.pass_context
def command(context: click.Context, output_format: str, rules: tuple[str, ...]) -> None:
    """List rules, test rule files and list the facts that rules can use."""
    if context.invoked_subcommand is not None:
        return
    from ..report import listing
    from ..rules.load import all_rules
    from ..rules.rule import RuleError

    try:
        known = all_rules(rules)
    except RuleError as error:
        raise Refused(str(error)) from None
    click.echo(listing.rules(known, output_format, terminal()))


@command.command("test")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
def test(paths: tuple[str, ...]) -> None:
    """Run the examples of rule files.

    PATH is a rule file or a directory of them; the default is the directories in the settings, or gpulint's own rules.

    Exit code 0: every example gives exactly the expected findings. 1: one does not, or is missing. 2: a rule file is
    invalid.
    """
    from ..report.text.rule_tests import render, summary
    from ..rules.rule import RuleError
    from ..rules.testing import tested_rules

    tested = []
    try:
        for item in tested_rules(paths or _default()):
            tested.append(item)
            click.echo(render(item))
    except RuleError as error:
        raise Refused(str(error)) from None
    if not tested:
        raise Refused(f"no rule files (.yaml, .yml) in {', '.join(paths)}")
    click.echo(summary(tested))
    sys.exit(COULD_NOT if any(item.error for item in tested) else int(not all(item.holds for item in tested)))


def _default() -> tuple[str, ...]:
    from ..rules.load import rules_folder
    from ..settings.layers import load
    from ..settings.settings import SettingsError

    try:
        return load(directory=os.curdir).rules or (rules_folder(),)
    except SettingsError as error:
        raise Refused(str(error)) from None


@command.command("facts")
def facts() -> None:
    """List the facts that rules can use, with type, unit and meaning."""
    from ..rules.facts.facts_page import page

    click.echo(page(), nl=False)
