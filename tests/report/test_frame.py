"""Frames of source lines: carets stand under what they mean, also where a part of the line is shown."""

import re

import pytest

from gpulint.finding import Location
from gpulint.report.style import Style
from gpulint.report.text.frame import CUT, WIDTH, frame
from gpulint.source.node import Span


def place(column, end, label="", line=1):
    return Location("a.yaml", Span(line, column, line, end, column - 1, end - 1), label)


def framed(text, column, end, width=0):
    _, source, carets, _ = frame(text, [place(column, end)], Style(width=width), "")
    return source[len("1 | ") :], carets[len("1 | ") :]


LINE = "serve " + " ".join(f"--flag-{number} {number * 7919}" for number in range(60))


@pytest.mark.parametrize("width", [0, 80, 120, 200])
@pytest.mark.parametrize("number", [0, 3, 5, 7, 31, 58, 59])
def test_a_long_line_is_shown_around_what_is_meant(number, width):
    flag = f"--flag-{number} "
    value = str(number * 7919)
    start = LINE.index(f"{flag}{value}") + len(flag)
    source, carets = framed(LINE, start + 1, start + 1 + len(value), width)
    assert len(source) <= (min(WIDTH, width - 4) if width else WIDTH)
    assert source[carets.index("^") : len(carets)] == value
    assert carets.strip("^ ") == ""
    assert flag + value in source
    assert source.startswith(CUT) != LINE.startswith(source[:20])
    assert source.endswith(CUT) != LINE.endswith(source[-20:])


@pytest.mark.parametrize("column", [1, 2, 60, 119, 120, 121, 123, 500, 560, 604])
def test_carets_end_where_the_part_ends(column):
    text = "k: " + "x" * 600
    end = min(column + 200, len(text) + 1)
    source, carets = framed(text, column, end)
    assert len(source) <= WIDTH
    assert len(carets) <= (len(source) if column <= len(text) else len(source) + 1)
    assert carets.strip("^ ") == ""
    assert carets.endswith("^")


@pytest.mark.parametrize("length", [WIDTH - 1, WIDTH, WIDTH + 1])
def test_a_line_that_just_fits_is_whole(length):
    source, carets = framed("y" * length, length, length + 1)
    assert (source == "y" * length) == (length <= WIDTH)
    assert carets.rstrip("^") == " " * (len(source) - 1)


def test_another_place_of_the_line_that_is_far_away_shows_the_line_again():
    first, last = LINE.index("237570") + 1, LINE.index("--flag-2 ") + 1
    lines = frame(LINE, [place(first, first + 6), place(last, last + 8, "see")], Style(), "no")
    shown = [line for line in lines if line.startswith("1 |")]
    assert len(shown) == 2
    assert "--flag-30 237570" in shown[0]
    assert "--flag-2 " in shown[1]
    mark = next(line for line in lines if "- see" in line)
    assert shown[1][mark.index("--------") :].startswith("--flag-2")


def test_a_place_near_by_shares_the_part():
    first = LINE.index("237570") + 1
    lines = frame(LINE, [place(first, first + 6), place(first - 10, first - 1)], Style())
    assert sum(line.startswith("1 |") for line in lines) == 1


def test_behind_the_end_of_a_short_line():
    assert framed("a: 1", 5, 5) == ("a: 1", "    ^")


def test_a_secret_on_the_line_after_its_flag_is_stars():
    text = "args:\n  - --api-key\n  - hunter2\n"
    lines = frame(text, [place(5, 12, line=3)], Style())
    assert not re.search("hunter2", "\n".join(lines))
    assert "- *******" in lines[1]


@pytest.mark.parametrize(("severity", "code"), [("error", "1;31"), ("warning", "1;33"), ("info", "36")])
def test_carets_have_the_colour_of_the_severity(severity, code):
    assert f"\x1b[{code}m^" in frame("a: 1", [place(1, 2)], Style(colour=True), "", severity)[2]
