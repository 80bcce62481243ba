"""Tests of a script on variables that only the run knows by then decide nothing."""

from __future__ import annotations

import pytest

from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import commands

DECIDED = 'if [ "$N" = 2 ]; then TP=4; else TP=1; fi\nrun $TP'


def last(text: str) -> str:
    word = commands(Script(text, range(len(text))))[-1].words[-1]
    return word.text if word.known else "unknown"


@pytest.mark.parametrize(
    "before",
    [
        "N=2\n",
        "source venv/bin/activate\nN=2\n",
        "eval $(settings)\nN=2\n",
        "for f in *.txt; do echo $f; done\nN=2\n",
        "N=2\nread -r OTHER\n",
    ],
)
def test_what_the_script_itself_says_decides(before):
    assert last(before + DECIDED) == "4"


@pytest.mark.parametrize(
    "before",
    [
        "N=2\nsource /etc/cluster.env\n",
        "N=2\neval $(settings)\n",
        "N=2\nread N\n",
        "N=2\nprintf -v N %d 3\n",
        "N=2\nwhile [ $N -lt 9 ]; do N=$((N+1)); done\n",
        "N=2\nfor ((N=0; N<4; N++)); do echo; done\n",
    ],
)
def test_what_something_else_may_have_set_does_not(before):
    assert last(before + DECIDED) == "unknown"


def test_a_pass_of_a_loop_is_not_the_last():
    text = "TP=1\nwhile a; do\n i=$((i+1))\n if [ $i -eq 2 ]; then TP=4; fi\ndone\nrun $TP"
    assert last(text) == "unknown"


def test_commands_of_a_branch_that_does_not_run_are_not_there():
    text = 'MODE=a\nif [ "$MODE" = b ]; then one; else two; fi\ncase $MODE in b) three ;; *) four ;; esac\n'
    words = {command.words[0].text for command in commands(Script(text, range(len(text))))}
    assert {"two", "four"} <= words
    assert not {"one", "three"} & words
