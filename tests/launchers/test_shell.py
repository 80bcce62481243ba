"""Splitting a script as a shell would, and knowing where each word stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import MAX_FILLED, commands


def run(text: str, **variables: str):
    return commands(Script(text, range(len(text))), variables)


def words(text: str, **variables: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in run(text, **variables)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a \\\n  b # comment\nc", [["a", "b"], ["c"]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > out 2>&1 < in b", [["a", "b"]]),
        ("X=1\na $X ${X} \"$X\" '$X'", [["a", "1", "1", "1", "$X"]]),
        ("X='p q'\na $X \"$X\"", [["a", "p", "q", "p q"]]),
        ("X=p; X+=q; a $X", [["a", "pq"]]),
        ("A=(1 '2 3')\nA+=(4)\na \"${A[@]}\"", [["a", "1", "2 3", "4"]]),
        ("a ${X:-5} ${Y-6}", [["a", "5", "6"]]),
        ("X=7\na ${X:-5}", [["a", "7"]]),
        (": ${X:=5}\na $X", [[":", "5"], ["a", "5"]]),
        ("M=/m/Qwen3-8B\na $(basename ${M}) $(dirname $M)", [["a", "Qwen3-8B", "/m"]]),
        ('a "$(basename $U)"', [["a", "$(basename $U)"]]),
        ("torchrun $(which swift) sft", [["torchrun", "swift", "sft"]]),
        ('D=$(dirname "$0")\na "$(cd "$D/.." &>/dev/null && pwd)/train.py"', [["a", "../train.py"]]),
        ("N=2\na $((N * 8)) $(( $N + 1 ))", [["a", "16", "3"]]),
        ("N=2\na $[128/($N*4)] b", [["a", "16", "b"]]),
        ("a --seed 0 \\", [["a", "--seed", "0"]]),
        ('E="--n $((A + B))"\na 1 $E', [["a", "1", "--n", "$((A + B))"]]),
        ("cat <<EOF\nx $Y\nEOF\nb", [["cat"], ["b"]]),
        ("if [ $? -ne 0 ]; then a; fi", [["[", "$?", "-ne", "0", "]"], ["a"]]),
        ("for x in 1; do a $x; done", [["a", "1"]]),
        ("for x in 1 2; do a $x; done", [["a", "$x"]]),
        ("export A=1 B=2; a $A$B", [["export"], ["a", "12"]]),
        ("E=\na $E b", [["a", "b"]]),
        ("a 'unclosed", [["a", "unclosed"]]),
        ('--x="$UNSET"', [["--x=$UNSET"]]),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


def test_what_only_the_running_script_knows_is_marked():
    (command,) = run('a $HOME "$(date)" `id` $((X+1)) b')
    assert [word.known for word in command.words] == [True, False, False, False, False, True]
    assert command.words[2].text == "$(date)"


def test_a_blank_that_the_reader_is_to_fill_is_a_word_and_no_redirection():
    (command,) = run("V=<a b>\nx $V --in <the path> --out=<dir>/y --n 3 <from> to <z> <q >r s")
    assert [word.text for word in command.words] == [
        *("x", "<a b>", "--in", "<the path>", "--out=<dir>/y", "--n", "3", "<from>", "to", "<z>", "s")
    ]
    assert [word.known for word in command.words[2:6]] == [True, False, False, True]


def test_variables_of_the_launcher_are_known():
    assert words("a $SLURM_NNODES", SLURM_NNODES="4") == [["a", "4"]]


def test_a_word_from_a_variable_stands_where_the_variable_was_set():
    text = 'ARGS="--lr 1"\nrun $ARGS'
    (command,) = run(text)
    assert [text[word.at[0] : word.at[-1] + 1] for word in command.words] == ["run", "--lr", "1"]
    assert command.words[1].at[0] == text.index("--lr")


def test_a_here_document_is_the_input_of_its_command():
    (command,) = run('M=x\ncat > ds.json <<EOF\n{"m": "$M"}\nEOF\n')
    assert command.output == "ds.json"
    assert command.input is not None
    assert command.input.text == '{"m": "x"}\n'


def test_variables_that_double_do_not_fill_the_memory():
    text = "A=xxxxxxxxxxxxxxxx\n" + "".join(f"A=$A$A$A$A$A$A$A$A # {n}\n" for n in range(40)) + "run $A"
    (command,) = run(text)
    assert sum(len(word.text) for word in command.words) <= 2 * MAX_FILLED


@given(st.text(alphabet="ab $\"'\\\n`(){}[]<>|&;=#-:@1", max_size=80))
def test_any_text_is_read_and_every_character_has_a_place(text):
    for command in run(text):
        for word in command.words:
            assert len(word.at) == len(word.text)
            assert all(0 <= place < len(text) for place in word.at)


def test_a_variable_with_an_unknown_part_is_split_all_the_same():
    (command,) = run('A="--nodes $N --gpus 8 $(date +%s -u) ${X:-a b}"\nrun $A')
    assert [(word.text, word.known) for word in command.words[1:]] == [
        ("--nodes", True), ("$N", False), ("--gpus", True), ("8", True), ("$(date +%s -u)", False),
        ("a", True), ("b", True),
    ]  # fmt: skip


def test_calls_within_a_substitution_part_no_words():
    asked = "$(python -c 'import torch; print(torch.cuda.device_count())')"
    (command,) = run(f'N={asked}\nA="\n  --nproc_per_node $N \\\n  --nnodes 1\n"\ntorchrun $A train.py')
    assert [(word.text, word.known) for word in command.words] == [
        ("torchrun", True), ("--nproc_per_node", True), (asked, False), ("--nnodes", True), ("1", True),
        ("train.py", True),
    ]  # fmt: skip


def test_a_here_document_may_fill_a_variable():
    text = "read -r -d '' ARGS <<EOF\ntrain \\\n  --lr 1\nEOF\nrun $ARGS"
    assert words(text)[-1] == ["run", "train", "--lr", "1"]


def test_brackets_within_arithmetic():
    assert words("run $((128 / (4 * 8))) x") == [["run", "4", "x"]]
    assert words("run $((128 / (B * 8))) x") == [["run", "$((128 / (B * 8)))", "x"]]


def test_the_functions_of_a_sourced_script_set_nothing():
    library = "A=1\nsetup() {\n  A=2\n  export TP=1\n}\n"
    text = "source lib.sh\nrun $A $TP\n"
    last = commands(Script(text, range(len(text))), source=lambda path: Script(library, range(len(library))))[-1]
    assert [(word.text, word.known) for word in last.words] == [("run", True), ("1", True), ("$TP", False)]
