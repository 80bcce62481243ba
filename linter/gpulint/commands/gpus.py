"""`gpulint gpus`."""

from __future__ import annotations

import click

from .console import Refused, terminal


@click.command("gpus")
@click.argument("query", required=False)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def command(query: str | None, output_format: str) -> None:
    """List the GPUs in the catalogue and their memory as torch reports it."""
    from ..hardware.catalogue import UnknownGpu, find, gpus
    from ..report import listing

    known = gpus()
    if query:
        matching = [gpu for gpu in known if query.lower() in gpu.name or query.lower() in gpu.title.lower()]
        try:
            known = tuple(matching) or (find(query),)
        except UnknownGpu as error:
            raise Refused(str(error)) from None
    click.echo(listing.gpus(known, output_format, terminal()))
