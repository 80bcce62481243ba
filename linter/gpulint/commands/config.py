"""`gpulint config`."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ..settings.settings import Settings, SettingsError
from ..words import word
from .console import Refused, terminal
from .options import hardware_options, layers_of, selection_options

if TYPE_CHECKING:
    from ..settings.layers import Layers


@click.group("config")
def command() -> None:
    """Show the settings that apply to a file."""


@command.command("show")
@click.argument("path", default=".", metavar="[FILE]")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@hardware_options
@selection_options
def show(path: str, output_format: str, config: str | None, isolated: bool, **options: Any) -> None:
    """Show the settings for FILE and where each comes from. [default: the current directory]"""
    if not os.path.exists(path):
        raise Refused(f"{path}: no such file or directory")
    layers = layers_of(config, isolated=isolated, options=options)
    try:
        rows = _rows(layers, path)
    except SettingsError as error:
        raise Refused(str(error)) from None
    if output_format == "json":
        settings = {name: {"value": value, "from": origin} for name, value, origin in rows}
        click.echo(
            json.dumps({"schema": "gpulint-config/1", "file": layers.file(path), "settings": settings}, indent=2)
        )
        return
    from ..report.table import table

    shown = [(name, os.path.relpath(value) if name == "root" else value, origin) for name, value, origin in rows]
    click.echo(f"settings file: {_shown(layers.file(path))}")
    cells = [(name, word(value), origin) for name, value, origin in shown]
    click.echo(table(("SETTING", "VALUE", "FROM"), cells, terminal()))


def _rows(layers: Layers, path: str) -> list[tuple[str, Any, str]]:
    """Every setting with its value and who set it."""
    values = layers.values(path)
    settings = layers.of(path)
    rows = [(name.replace("_", "-"), value.value, value.origin) for name, value in sorted(values.items())]
    named = {_FIELDS.get(name, name.replace("-", "_")) for name in values}
    rows += [
        (item.name.replace("_", "-"), getattr(settings, item.name), "default")
        for item in fields(Settings)
        if item.name in _SHOWN and item.name not in named
    ]
    rows.append(("root", settings.root, "where the repository or the settings file is"))
    return rows


_FIELDS = {"gpu": "configured_gpu", "gpus": "configured_gpus", "nodes": "configured_nodes"}
_SHOWN = frozenset({"headroom", "select", "ignore", "exclude", "rules", "models", "preview", "fail_on", "baseline"})


def _shown(path: str | None) -> str:
    from ..source.referenced import shown_path

    return shown_path(path) if path else "none"
