"""The programs of `programs.json`, one row each: what their flags and config files are."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...source.tables import read_table
from .flags import Manner


class Program(NamedTuple):
    """A program and how its command line is read.

    format   the format of its flags and of its config file
    heads    how it is called: "vllm serve"; "-m axolotl.cli.train"; "src/train.py" for a script whose path ends so
    manner   how its flags are read
    config   the flags that name a config file of the same format
    file     whether its first word that is no flag names the config file
    variables whether environment variables set options, too (`x-variable` in the schema); flags win
    more     whether the program has options of its own beside those of the format; they are left out
    exact    whether its parser (clap, click) takes options in full only; argparse takes unique beginnings
    under    whether the file wins over the flags
    ignores  whether it passes over options that it does not know (argparse's `parse_known_args`)
    """

    format: str
    heads: tuple[str, ...]
    manner: Manner
    config: tuple[str, ...]
    file: bool = False
    variables: bool = False
    more: bool = False
    exact: bool = False
    under: bool = False
    ignores: bool = False


def _program(row: dict[str, Any], short: dict[str, str]) -> Program:
    switches = frozenset(row["switches"]).__contains__ if "switches" in row else None
    reads = {name: row[name] for name in ("underscored", "nested", "overrides", "positionals") if name in row}
    manner = Manner(switches, short | row.get("short", {}), **reads)
    flags = {name: row[name] for name in Program._fields[4:] if name in row}
    return Program(row["format"], tuple(row["heads"]), manner, tuple(row.get("config", ())), **flags)


_TABLE = read_table(__file__, "programs.json")
MODULES: dict[str, str] = _TABLE["modules"]
"""Modules that are a command under another name: `python -m trl.cli sft` is `trl sft`."""

PROGRAMS = tuple(_program(row, _TABLE["short"].get(row["format"], {})) for row in _TABLE["programs"])
