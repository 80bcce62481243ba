"""Tables: aligned text for pipes, wrapped to the width of a terminal."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from gpulint.report.style import Style
from gpulint.report.table import table, wrapped

HEAD = ("NAME", "WHAT")
ROWS = [("h100-80gb-pcie", "a card of eighty gigabytes"), ("t4", "an old one")]


def test_piped_tables_are_aligned_and_never_wrapped():
    assert table(HEAD, [(name, what * 9) for name, what in ROWS]).splitlines() == [
        "NAME            WHAT",
        "h100-80gb-pcie  " + "a card of eighty gigabytes" * 9,
        "t4              " + "an old one" * 9,
    ]


@pytest.mark.parametrize(("width", "lines"), [(42, 3), (41, 4), (32, 4), (31, 5)])
def test_a_terminal_that_is_too_narrow_wraps_words_and_no_names(width, lines):
    """The table is 14 + 2 + 26 columns wide."""
    shown = table(HEAD, ROWS, Style(width=width)).splitlines()
    assert len(shown) == lines
    assert max(map(len, shown)) <= width
    assert [line.split()[0] for line in shown if not line.startswith(" ")] == ["NAME", "h100-80gb-pcie", "t4"]
    words = re.findall(r"\S+", " ".join(line[16:] for line in shown))
    assert words == ["WHAT", *ROWS[0][1].split(), *ROWS[1][1].split()]


@pytest.mark.parametrize("width", [0, 30, 42])
def test_a_heading_is_bold_where_there_is_colour(width):
    plain = table(HEAD, ROWS, Style(width=width)).splitlines()
    bold = table(HEAD, ROWS, Style(True, width)).splitlines()
    assert bold == [f"\x1b[1m{plain[0]}\x1b[0m", *plain[1:]]


def test_what_a_file_says_is_printed_and_not_obeyed():
    rows = [("[bold]x[/bold]\x1b[31m", ":smile: https://example.org 12")] * 2
    for style in (Style(), Style(width=48)):
        shown = table(HEAD, rows, style)
        assert "\x1b" not in shown
        assert "[bold]x[/bold]\\x1b[31m" in shown
        assert ":smile:" in shown


def test_names_that_leave_no_room_are_broken_and_nothing_is_lost():
    shown = table(HEAD, ROWS, Style(width=20))
    assert max(map(len, shown.splitlines())) <= 20
    letters = sorted("".join((*HEAD, *ROWS[0], *ROWS[1])).replace(" ", ""))
    assert sorted(re.sub(r"\s", "", shown)) == letters


def test_a_first_column_with_a_width_wraps_in_it():
    assert wrapped([("one two", "x")], (4, 1), 40) == ["one   x", "two"]


def test_colours_of_cells_stay_with_their_words_when_they_wrap():
    (first, second) = wrapped([("name", "\x1b[2mone two\x1b[0m")], (4, 0), 11, indent=1)
    assert first.startswith(" name  \x1b[2mone")
    assert second == "       \x1b[2mtwo\x1b[0m"


def test_wide_characters_take_two_columns():
    (first, second) = wrapped([("x", "模型")], (1, 3), 6)
    assert (first, second) == ("x  模", "   型")


@pytest.mark.parametrize(("width", "needed"), [(0, False), (42, False), (41, True)])
def test_rich_is_imported_where_words_wrap(width, needed):
    code = (
        "import sys\nfrom gpulint.report.style import Style\nfrom gpulint.report.table import table\n"
        f"table({HEAD!r}, {ROWS!r}, Style(width={width}))\nprint('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(needed)
