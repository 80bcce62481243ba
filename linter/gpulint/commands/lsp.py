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
@click.option("--stdio", is_flag=True, hidden=True, help="Accepted because editors pass it; the only transport.")
def command(config: str | None, isolated: bool, stdio: bool, **options: Any) -> None:  # noqa: ARG001
    """Run the language server (LSP) on standard input and output.

    Provides findings as you type, quick fixes, hover help, completion and a memory estimate above the file. Settings
    come from the nearest gpulint.toml; options override them.
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
