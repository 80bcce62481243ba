"""`gpulint completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a shell completion script: `eval "$(gpulint completion bash)"`."""
    found = get_completion_class(shell)
    if found is not None:
        root = context.find_root().command
        click.echo(found(root, {}, "gpulint", "_GPULINT_COMPLETE").source())
