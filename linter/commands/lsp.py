"""`gpulint lsp`."""

from __future__ import annotations

import click

from .console import Refused


@click.command("lsp")
@click.option("--stdio", is_flag=True, hidden=True, help="Accepted for editors that pass it; there is no other way.")
def command(stdio: bool) -> None:  # noqa: ARG001
    """Serve editors by the Language Server Protocol, on standard input and output.

    Findings as you type, quick fixes, what a key means and costs, completion, and the memory above the file.
    Settings are those of the closest gpulint.toml.
    """
    try:
        import pygls  # noqa: F401
    except ModuleNotFoundError:
        raise Refused("the language server needs pygls: pip install 'gpulint[lsp]'") from None
    from ..editor.server import serve

    serve()
