"""What counts as filled in later."""

from __future__ import annotations

import pytest

from gpulint.formats.core.placeholders import is_blank, is_whole_blank

BLANKS = [
    "${X}", "$X", "a/${X}", "{{ x }}", "<your-model>", "$(nproc)", "`id`", "$1", "???", "{batch}", "__SIZE__", "@SIZE@",
]  # fmt: skip
VALUES = ["meta/llama", "a < b", "5$", 3, None, "{a: 1}", "x_$", "{}", "??", "__init__", "50%"]


@pytest.mark.parametrize("value", BLANKS)
def test_blanks(value):
    assert is_blank(value)


@pytest.mark.parametrize("value", VALUES)
def test_what_is_none(value):
    assert not is_blank(value)


def test_whole_blanks():
    assert is_whole_blank("${X}")
    assert is_whole_blank(" $X ")
    assert not is_whole_blank("${X}/model")
