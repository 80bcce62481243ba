"""`gpulint models`."""

from __future__ import annotations

import click

from .console import Refused, terminal


class _Searching(click.Group):
    """`models QUERY` is `models list QUERY`."""

    otherwise = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the command where the first word does not."""
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.otherwise, *args])


@click.group("models", cls=_Searching)
def command() -> None:
    """List known models or add one; `models QUERY` is `models list QUERY`."""


@command.command("list")
@click.argument("query", required=False)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def listed(query: str | None, output_format: str) -> None:
    """List models in the catalogue whose id contains QUERY, with their exact parameter counts."""
    from ..models.catalogue import search
    from ..report import listing

    found = search(query or "")
    if not found:
        advice = f"`gpulint models add {query}`" if "/" in (query or "") else "`gpulint models add ORG/NAME`"
        raise Refused(f"no model in the catalogue matches {query!r}; {advice} downloads a model's config.json")
    click.echo(listing.models(found, output_format, terminal()))


@command.command("add")
@click.argument("names", nargs=-1, required=True, metavar="ORG/NAME...")
@click.option("--revision", metavar="REV", help="Branch, tag or commit. [default: main]")
def add(names: tuple[str, ...], revision: str | None) -> None:
    """Download the config.json of a model into the project's `models` directory.

    The only command that uses the network. It needs `pip install 'gpulint[hub]'` and uses the Hugging Face Hub
    (`HF_ENDPOINT`, and the login of `hf auth login`). Commit the file so that the model is known to everyone.
    """
    import os

    from ..models.fetch import FetchError, fetch
    from ..report import listing
    from ..settings.settings import project_root

    root = project_root(os.curdir)
    for name in names:
        try:
            path, model = fetch(name, root, revision)
        except FetchError as error:
            raise Refused(str(error)) from None
        click.echo(f"wrote {os.path.relpath(path)}: {listing.model(model)}")
