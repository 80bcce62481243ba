"""The `gpulint` command: each subcommand is a module of `commands/`, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

from . import __version__

COMMANDS = ("check", "estimate", "plan", "explain", "rules", "gpus", "models", "config", "lsp")


class _Commands(click.Group):
    """The commands in the order of COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click names it
        """Every command, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".commands.{cmd_name}", __package__).command
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                parameter.envvar = _variable(parameter)
        return command


def _variable(option: click.Option) -> str:
    """The environment variable that sets an option: `GPULINT_OUTPUT_FORMAT` for `--output-format`."""
    return "GPULINT_" + option.opts[0].lstrip("-").replace("-", "_").upper()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpulint", message="%(prog)s %(version)s")
def main() -> None:
    """Find what will run out of GPU memory, what is a mistake and what is waste, in the configs that start the jobs.

    Needs no GPU, no torch and no network. Every option can be set in the environment, too: GPULINT_GPU for --gpu.
    """
