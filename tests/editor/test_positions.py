"""Offsets and positions are each other's inverse, in every encoding and with every line break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.editor.positions import Lines
from gpulint.source.places import Places

TEXTS = st.text(st.sampled_from("ab: é\u2028😀\r\n"), max_size=30)


@pytest.mark.parametrize(("encoding", "unit"), [("utf-16", 2), ("utf-8", 4), ("utf-32", 1)])
def test_a_character_beyond_the_first_plane_counts_its_code_units(encoding, unit):
    lines = Lines("a\nx😀y", encoding)
    assert lines.position(4) == (1, 1 + unit)
    assert lines.offset(1, 1 + unit) == 4


def test_a_unit_within_a_character_is_its_start_and_one_beyond_the_line_its_end():
    lines = Lines("😀b\r\nc")
    assert lines.offset(0, 1) == 0
    assert lines.offset(0, 99) == 2
    assert lines.offset(7, 0) == 5


@given(TEXTS, st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_positions_lead_back(text, encoding):
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n" and text[offset : offset + 1] != "\n":
            assert lines.offset(*lines.position(offset)) == offset


@given(TEXTS, st.integers(0, 30), st.integers(0, 30))
def test_spans_of_readers_are_found_again(text, start, end):
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    assert Lines(text).of_span(Places(text).span(start, end)) == (start, end)


def test_a_byte_order_mark_takes_no_column():
    text = "\ufeffkey: 1\n"
    assert Lines(text).of_span(Places(text).span(1, 4)) == (1, 4)
