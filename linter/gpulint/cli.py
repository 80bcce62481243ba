"""The `gpulint` command: each subcommand is a module of `commands/`, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from . import __version__
from .commands.console import wanted_colour

COMMANDS = (
    "check", "estimate", "plan", "explain", "rules", "gpus", "models", "compare", "config", "init", "lsp",
    "completion",
)  # fmt: skip


class _Commands(click.Group):
    """The commands in the order of COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click names it
        """Every command, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, COMMANDS, 1, 0.5)
            if near and not ctx.resilient_parsing:
                ctx.fail(f"No such command '{cmd_name}'; did you mean {near[0]}?")
            return None
        command: click.Command = import_module(f".commands.{cmd_name}", __package__).command
        _name_variables(command)
        return command


def _name_variables(command: click.Command) -> None:
    """Let every option of a command, and of those below it, be set in the environment."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            parameter.envvar = _variable(parameter)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _name_variables(inner)


def _variable(option: click.Option) -> str:
    """The environment variable that sets an option: `GPULINT_OUTPUT_FORMAT` for `--output-format`."""
    return "GPULINT_" + option.opts[0].lstrip("-").replace("-", "_").upper()


@click.group(cls=_Commands, context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100})
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    envvar="GPULINT_COLOR",
    help="When to use color. [default: auto: on a terminal, unless NO_COLOR is set]",
)
@click.version_option(__version__, prog_name="gpulint", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context, color: str) -> None:
    """Find configs of GPU jobs that will run out of memory, contain mistakes or waste resources.

    Needs no GPU, no torch and no network. Options can also be set in the environment: GPULINT_GPU for --gpu.
    """
    context.color = wanted_colour(color)
