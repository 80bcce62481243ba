"""`gpulint explain`."""

from __future__ import annotations

import click

from .console import Refused


@click.command("explain")
@click.argument("rule")
@click.option("--rules", multiple=True, metavar="DIR", help="Directory with your own rule files; repeatable.")
def command(rule: str, rules: tuple[str, ...]) -> None:
    """Explain a rule: what it finds, why it matters, examples. RULE is an id or a name."""
    from ..rules.explain import page
    from ..rules.load import rule_file
    from ..rules.rule import RuleError

    try:
        click.echo(page(rule_file(rule, rules)))
    except RuleError as error:
        raise Refused(str(error)) from None
