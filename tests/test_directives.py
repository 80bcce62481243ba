from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.settings.directives import read_directives
from gpulint.source.document import SourceError
from gpulint.source.read import parse


def directives_of(text: str):
    return read_directives(parse(text, "train.yaml", "yaml"))


def test_hardware():
    found = directives_of("# gpulint: gpu=h100-80gb gpus=8, nodes=2\na: 1\n")
    assert (found.gpu, found.gpus, found.nodes, found.lines["gpu"]) == ("h100-80gb", 8, 2, 1)


def test_a_hash_in_a_string_is_no_comment():
    assert directives_of('a: "# gpulint: gpu=t4"\n').gpu is None


@pytest.mark.parametrize("text", ["gpus=many", "gpus=0", "cpu=3", "gpu h100", "", "gpu=t4 please"])
def test_what_cannot_be_understood_is_refused_at_its_line(text):
    with pytest.raises(SourceError) as error:
        directives_of(f"a: 1\n# gpulint: {text}\n")
    assert error.value.line == 2


def silenced(text: str, line: int, rule: str = "GPU101", name: str = "x") -> bool:
    return any(ignore.silences(line, rule, name) for ignore in directives_of(text).ignores)


def test_a_comment_on_its_own_line_speaks_of_the_next_line_with_content():
    text = "a: 1\n# gpulint: ignore[GPU101, tight-fit] known\n\n# a word\nb: 2\nc: 3\n"
    assert silenced(text, 5)
    assert silenced(text, 5, "GPU999", "tight-fit")
    assert not silenced(text, 1)
    assert not silenced(text, 6)
    assert not silenced(text, 5, "GPU102", "y")


def test_a_comment_behind_a_line_speaks_of_that_line():
    text = "a: 1  # gpulint: ignore[GPU101]\nb: 2\n"
    assert silenced(text, 1)
    assert not silenced(text, 2)


def test_a_block_from_start_to_end():
    text = "a: 1\n# gpulint: ignore-start[GPU101] why\nb: 2\nc: 3\n# gpulint: ignore-end\nd: 4\n"
    assert [line for line in range(1, 7) if silenced(text, line)] == [2, 3, 4, 5]


def test_the_whole_file():
    assert silenced("# gpulint: ignore-file[GPU101]\na: 1\n", 77)


def test_a_command_over_several_lines_counts_as_one():
    script = parse("# gpulint: ignore[GPU101]\ntorchrun \\\n  train.py \\\n  --x 1\nls\n", "x.sh", "shell")
    (ignore,) = read_directives(script).ignores
    assert (ignore.first, ignore.last) == (2, 4)


def test_the_reason_is_what_follows_the_bracket():
    (ignore,) = directives_of("# gpulint: ignore[GPU101]  on the 94 GB cards \na: 1\n").ignores
    assert ignore.reason == "on the 94 GB cards"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# gpulint: ignore\na: 1\n", 1),
        ("# gpulint: ignore[]\na: 1\n", 1),
        ("# gpulint: ignore-file reason\na: 1\n", 1),
        ("# gpulint: ignorance[GPU101]\na: 1\n", 1),
        ("a: 1\n# gpulint: ignore-start[GPU101]\nb: 2\n", 2),
        ("a: 1\n# gpulint: ignore-end\n", 2),
    ],
)
def test_a_suppression_that_names_nothing_is_refused(text, line):
    with pytest.raises(SourceError) as error:
        directives_of(text)
    assert error.value.line == line


@given(st.text(alphabet="ab#:[]\n \\-", max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(SourceError):
        directives_of("# gpulint: ignore[GPU101]\n" + text)
