"""`docs/commands.md`: the commands, from the objects that click runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from gpulint.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """# Commands

<!-- Made by scripts/build.py from linter/gpulint/commands. -->

Every option can also be set by the environment variable in the last column; the command line wins. `-h` shows the same
texts as this page.
"""


_CHOICE = re.compile(r"\[[\w|-]+\]")
"""A choice as click shows it; its bars would end the cell of a table."""


def page() -> str:
    """The page: a section a command, with its arguments, what it does and a table of its options."""
    context = click.Context(main, info_name="gpulint")
    return "\n".join([HEAD, *(line for name in main.list_commands(context) for line in _section(context, name, main))])


def _section(parent: click.Context, name: str, group: click.Group, level: int = 2) -> Iterator[str]:
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}\n"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    yield _text(command.help or "") + "\n"
    options = [item for item in command.params if isinstance(item, click.Option)]
    if options:
        yield "| option | meaning | environment |"
        yield "|---|---|---|"
        yield from (_row(option, context) for option in options)
        yield ""
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _section(context, inner, command, level + 1)


def _text(text: str) -> str:
    """Paragraphs on a line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _row(option: click.Option, context: click.Context) -> str:
    names, text = option.get_help_record(context) or ("", "")
    variable = f"`{option.envvar}`" if option.envvar else ""
    return f"| `{_CHOICE.sub(lambda found: found[0].replace('|', ','), names.strip())}` | {_text(text)} | {variable} |"
