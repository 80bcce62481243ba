"""`gpulint models`."""

from __future__ import annotations

import click

from .console import Refused


@click.command("models")
@click.argument("query", required=False)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def command(query: str | None, output_format: str) -> None:
    """List the models of the catalogue whose id contains QUERY, with their exact parameter counts."""
    from ..models.catalogue import search
    from ..report import listing

    found = search(query or "")
    if not found:
        raise Refused(f"no model in the catalogue matches {query!r}; a path to its config.json works in any config")
    click.echo(listing.models(found, output_format))
