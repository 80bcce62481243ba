"""`gpulint lsp`."""

from __future__ import annotations

import os
from typing import Any

import click

from .console import Refused
from .options import hardware_options, optional_layers, selection_options


@click.command("lsp")
@hardware_options
@selection_options
@click.option("--stdio", is_flag=True, hidden=True, help="Accepted for editors that pass it; there is no other way.")
def command(config: str | None, isolated: bool, stdio: bool, **options: Any) -> None:  # noqa: ARG001
    """Serve editors by the Language Server Protocol, on standard input and output.

    Findings as you type, quick fixes, what a key means and costs, completion, and the memory above the file.
    Settings are those of the closest gpulint.toml; the options win over them.
    """
    try:
        import pygls  # noqa: F401
    except ModuleNotFoundError:
        raise Refused("the language server needs pygls: pip install 'gpulint[lsp]'") from None
    from ..editor.server import Session
    from ..settings.layers import Layers

    options["rules"] = tuple(map(os.path.abspath, options["rules"]))
    config = os.path.abspath(config) if config else None
    given = optional_layers(config, isolated=isolated, options=options).given
    Session(lambda: Layers(given, config, isolated=isolated)).serve()
