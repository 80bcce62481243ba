"""Frames of source lines: carets stand under what they mean, also where the line is cut."""

import pytest

from gpulint.finding import Location
from gpulint.report.style import Style
from gpulint.report.text.frame import WIDTH, frame
from gpulint.source.node import Span


def framed(text, column, end, width=0):
    location = Location("a.yaml", Span(1, column, 1, end, column - 1, end - 1))
    _, source, carets, _ = frame(text, [location], Style(width=width), "")
    return source[len("1 | ") :], carets[len("1 | ") :]


@pytest.mark.parametrize("width", [0, 80, 200])
@pytest.mark.parametrize("column", [1, 50, 79, 100, 120, 121, 500])
def test_carets_end_where_the_line_is_cut(column, width):
    source, carets = framed("k: " + "x" * 600, column, column + 40, width)
    assert len(carets) <= len(source) <= WIDTH
    assert carets.strip("^ ") == ""
    assert carets.endswith("^")
    if column <= len(source):
        assert carets.index("^") == column - 1


def test_behind_the_end_of_a_short_line():
    assert framed("a: 1", 5, 5) == ("a: 1", "    ^")
