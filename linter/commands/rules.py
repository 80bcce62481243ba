"""`gpulint rules`."""

from __future__ import annotations

import click

from .console import Refused


@click.command("rules")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--rules", multiple=True, metavar="DIR", help="Folder with rule files of your own; repeatable.")
def command(output_format: str, rules: tuple[str, ...]) -> None:
    """List the rules."""
    from ..report import listing
    from ..rules.load import all_rules
    from ..rules.rule import RuleError

    try:
        known = all_rules(rules)
    except RuleError as error:
        raise Refused(str(error)) from None
    click.echo(listing.rules(known, output_format))
