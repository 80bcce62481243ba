"""Options that a script reads in a loop of its own, as the script that starts it gives them."""

from __future__ import annotations

import pytest

from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import Word, commands

LOOP = """
NODES=1
while [[ $# -gt 0 ]]; do
  case "$1" in
    --model) MODEL="$2"; shift 2 ;;
    -n|--nodes)
      NODES=$2
      shift 2
      ;;
    *) exit 1 ;;
  esac
done
run $MODEL $NODES
"""


def ran(arguments: list[str] | None) -> list[str]:
    """The words of the last command; one that is not known in brackets."""
    given = [Word(text, (-1,) * len(text)) for text in arguments] if arguments is not None else None
    last = commands(Script(LOOP, range(len(LOOP))), arguments=given)[-1]
    return [word.text if word.known else f"<{word.text}>" for word in last.words]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "m", "-n", "4"], ["run", "m", "4"]),
        (["--nodes", "2", "--model", "m"], ["run", "m", "2"]),
        (["--model", "a", "--model", "b"], ["run", "b", "1"]),
        (None, ["run", "<$2>", "1"]),
    ],
)
def test_a_branch_counts_where_its_option_is_given(arguments, expected):
    assert ran(arguments) == expected


def test_an_option_without_a_value_is_empty():
    assert ran(["--model", "m", "--nodes"]) == ["run", "m"]
