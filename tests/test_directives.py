from __future__ import annotations

import pytest

from gpulint.directives import read_directives
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


def test_ignore_holds_for_its_line_and_the_next():
    found = directives_of("a: 1\n# gpulint: ignore[GPU101, tight-fit] known\nb: 2\nc: 3\n")
    assert found.ignores(2, "GPU101", "x")
    assert found.ignores(3, "GPU999", "tight-fit")
    assert not found.ignores(4, "GPU101", "x")
    assert not found.ignores(3, "GPU102", "y")


def test_ignore_file_holds_everywhere():
    assert directives_of("# gpulint: ignore-file[GPU101]\na: 1\n").ignores(77, "GPU101", "x")
