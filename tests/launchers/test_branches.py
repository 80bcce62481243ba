"""Variables that branches of a script set: known where the script states one value, whichever branch runs."""

from __future__ import annotations

import pytest

from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import commands


def shown(text: str) -> list[str]:
    """The words of the last command; one that is not known in brackets."""
    last = commands(Script(text, range(len(text))))[-1]
    return [word.text if word.known else f"<{word.text}>" for word in last.words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if a; then N=8; else N=4; fi\nrun $N", "<$N>"),
        ("if a; then N=8; else N=8; fi\nrun $N", "8"),
        ("N=1\nif a; then N=8; fi\nrun $N", "<$N>"),
        ("N=1\nif a; then N=8\nelse\n  N=8\nfi\nrun $N", "8"),
        ("if [ -z $N ]; then N=8; fi\nrun $N", "8"),
        ("N=8\nif [ $# -gt 0 ]; then N=$1; fi\nrun $N", "8"),
        ("if a; then N=$1; elif b; then N=$2; fi\nrun $N", "<$2>"),
        ("if a; then\n  if b; then N=8; else N=4; fi\nfi\nrun $N", "<$N>"),
        ("case $K in\n  a) N=8 ;;\n  *) N=4 ;;\nesac\nrun $N", "<$N>"),
        ("N=1\ncase $K in a) N=8;; *) N=8;; esac\nrun $N", "8"),
        ("N=1\ncase $K in a) N=8;; esac\nrun $N", "<$N>"),
        ("if a; then export N=8; else export N=4; fi\nrun ${N:-2}", "<$N>"),
        ("fi\nesac\nN=8\nrun $N", "8"),
    ],
)
def test_behind_branches(text, expected):
    assert shown(text) == ["run", expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L=\nN=4\nif [[ -n $L ]]; then N=8; fi\nrun $N", "4"),
        ('L=""\nN=4\nif [[ -n "$L" ]]; then N=8; fi\nrun $N', "4"),
        ('L=9\nif [ -n "$L" ]; then N=8; else N=4; fi\nrun $N', "8"),
        ('L=""\nif [ -z "${L}" ]; then N=8; else N=4; fi\nrun $N', "8"),
        ("T=${1:-2}\nif [ $T -gt 1 ]; then N=8; else N=4; fi\nrun $N", "8"),
        ('T=b\nif [ "$T" = a ]; then N=8; elif [ "$T" == b ]; then N=4; else N=2; fi\nrun $N', "4"),
        ('T=b\nif [ "$U" = a ]; then N=8; elif [ "$T" == b ]; then N=4; else N=2; fi\nrun $N', "<$N>"),
        ('T=b\nif [ "$U" = a ]; then N=4; elif [ "$T" == b ]; then N=4; else N=2; fi\nrun $N', "4"),
        ('T=b\nN=1\nif [ "$T" = a ]; then N=8; fi\nrun $N', "1"),
        ('T=b\nN=1\nif ! [ "$T" = a ]; then N=8; fi\nrun $N', "<$N>"),
        ('T=b\nN=1\nif [ "$T" = b ] && ask; then N=8; fi\nrun $N', "<$N>"),
        ("N=1\nif [ -f there ]; then N=8; fi\nrun $N", "<$N>"),
        ("K=b\ncase $K in a) N=8;; b|c) N=4;; *) N=2;; esac\nrun $N", "4"),
        ('K=d\ncase "${K}" in\n  a) N=8 ;;\n  *) N=4 ;;\nesac\nrun $N', "4"),
        ("K=b2\ncase $K in a) N=8;; b*) N=4;; esac\nrun $N", "4"),
        ("N=1\nK=d\ncase $K in a) N=8;; b) N=4;; esac\nrun $N", "1"),
    ],
)
def test_a_branch_that_is_known_to_run_or_not_decides(text, expected):
    assert shown(text) == ["run", expected]


def test_what_a_skipped_branch_adds_to_an_array_is_not_there():
    text = (
        'A=(serve)\nL=\nif [[ -n "$L" ]]; then A+=(--length "$L"); fi\nM=9\nif [[ -n $M ]]; then A+=(--more $M); fi\n'
    )
    assert shown(text + '"${A[@]}"') == ["serve", "--more", "9"]


def test_within_a_branch_its_own_value_holds():
    text = "N=1\nif a; then N=8; run $N; else run $N; fi"
    ran = [command for command in commands(Script(text, range(len(text)))) if command.words[0].text == "run"]
    assert [command.words[1].text for command in ran] == ["8", "1"]


def test_many_open_branches_end():
    text = "if a; then N=8; " * 1000 + "fi; " * 1000 + "run $N"
    assert shown(text) == ["run", "8"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('E=""\nE="--length $L"\nrun --page 16 $E', ["run", "--page", "16", "--length", "<$L>"]),
        ('E="--query $(ask a b)"\nrun $E', ["run", "--query", "<$(ask a b)>"]),
    ],
)
def test_a_value_with_unknown_parts_becomes_words_at_blanks_outside_of_them(text, expected):
    assert shown(text) == expected


def test_a_computed_value_in_a_variable_parts_words():
    assert shown('LIMIT=$((A + B))\nARGS="--context-length $LIMIT"\nrun --page-size 3 $ARGS') == [
        "run", "--page-size", "3", "--context-length", "<$((A + B))>",
    ]  # fmt: skip
