from __future__ import annotations

import math

import pytest
from comparison import same, scalars
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpulint.source.document import Document, SourceError
from gpulint.source.limits import MAX_DEPTH
from gpulint.source.read import parse

CONFIG = """\
# a run
title = "llama"   # name
rate = 2e-4

[training]
steps = 1_000
"quoted.key" = 0x1F
when = 2024-01-31 07:32:00Z
mesh.dp = 8
mesh.tp = 2

[[stage]]
layers = [
  1, # first
  2,
]
[stage.optim]
name = 'adam#w'
[[stage]]
layers = []
point = { x = 1, y.z = true }
"""


def read(text: str) -> Document:
    return parse(text, "a.toml", "toml")


def refusal(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(text)
    return caught.value


def test_values():
    assert read(CONFIG).root.plain() == {
        "title": "llama",
        "rate": 2e-4,
        "training": {
            "steps": 1000,
            "quoted.key": 31,
            "when": "2024-01-31 07:32:00Z",
            "mesh": {"dp": 8, "tp": 2},
        },
        "stage": [
            {"layers": [1, 2], "optim": {"name": "adam#w"}},
            {"layers": [], "point": {"x": 1, "y": {"z": True}}},
        ],
    }


def test_spans_and_comments():
    document = read(CONFIG)
    root = document.root
    assert document.comments == [(1, "a run"), (2, "name"), (14, "first")]
    assert root.find("training.steps").value.span[:4] == (6, 9, 6, 14)
    assert root.find("training.steps").key.span[:4] == (6, 1, 6, 6)
    assert root.find("training").key.span[:4] == (5, 2, 5, 10)
    assert root.find("training").value.span[:4] == (5, 1, 10, 12)
    assert root.find("training.quoted.key").value.raw == "0x1F"
    assert root.find("training.mesh.tp").value.span.line == 10
    stages = root.get("stage")
    assert stages.span[:2] == (12, 1)
    assert [item.span.line for item in stages.items()] == [12, 19]
    assert stages.items()[0].find("optim.name").value.raw == "'adam#w'"
    assert stages.items()[0].get("layers").span[:4] == (13, 10, 16, 2)
    assert stages.items()[1].get("point").span[:4] == (21, 9, 21, 30)


def test_a_byte_order_mark_and_crlf_are_read():
    root = read('\ufeff"é" = 1\r\nb = """\r\nx\r\ny"""\r\n').root
    assert root.plain() == {"é": 1, "b": "x\ny"}
    assert root.entries()[0].key.span[:4] == (1, 1, 1, 4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\tb\\u00e9\\U0001F600"', "a\tbé😀"),
        ("'a\\tb'", "a\\tb"),
        ('"""\na\\\n   b"""', "ab"),
        ('""""quoted""""', '"quoted"'),
        ("'''it's'''", "it's"),
        ("+99", 99),
        ("0o755", 493),
        ("0b1101", 13),
        ("6.626e-34", 6.626e-34),
        ("-inf", -math.inf),
        ("1e6", 1e6),
        ("07:32:00.5", "07:32:00.5"),
        ("1979-05-27", "1979-05-27"),
        ("100000000000000000000", "100000000000000000000"),
        ("[[1], ['a', {b = []}]]", [[1], ["a", {"b": []}]]),
        ("{}", {}),
    ],
)
def test_kinds_of_values(text, value):
    assert same(read(f"a = {text}").root.get("a").plain(), value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\na = 2", 2, "already defined"),
        ("[a]\n[a]", 2, "already defined"),
        ("a = 1\n[a.b]", 2, "already defined"),
        ("a.b = 1\n[a]", 2, "already defined"),
        ("[a.b.c]\nz = 9\n[a]\nb.c.t = 1", 4, "already defined"),
        ("a = {b = 1}\n[a.c]", 2, "already defined"),
        ("a = {b = 1}\na.c = 1", 2, "already defined"),
        ("a = []\n[[a]]", 2, "already defined"),
        ("[a.b]\n[[a]]", 2, "already defined"),
        ("a = ", 1, "expected a value"),
        ("a", 1, "expected '='"),
        ("a = 1 b = 2", 1, "end of the line"),
        ("a = 01", 1, "not a valid value"),
        ("a = 1.", 1, "not a valid value"),
        ("a = 2021-02-30", 1, "not a valid value"),
        ("a = 'x", 1, "expected a value"),
        ('a = "\\q"', 1, "expected a value"),
        ('a = "\\ud800"', 1, "expected a value"),
        ("a = {b = 1,}", 1, "expected a key"),
        ("a = {b = 1\n}", 1, "expected '}'"),
        ("[a", 1, "expected ']'"),
        ("# \x00", 1, "U+0000"),
        ("a = '''\rx'''", 1, "U+000D"),
    ],
)
def test_errors_name_their_line(text, line, words):
    error = refusal(text)
    assert error.line == line
    assert words in error.reason


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 30_000,
        "a = " + "{a=" * 20_000,
        ".".join(["a"] * 30_000) + " = 1",
        "[" + ".".join(["a"] * 30_000) + "]",
        "".join(f"[[{'.'.join(['a'] * n)}]]\n" for n in range(1, 60)),
    ],
)
def test_a_deep_nest_is_refused(text):
    assert "deeper" in refusal(text).reason


def test_depth_is_capped_exactly():
    deep = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert read(f"a = {deep}").root.get("a").is_sequence
    assert "deeper" in refusal(f"a = [{deep}]").reason


@pytest.mark.parametrize(
    "text", ['"""' + "a" * 500_000, "'''" + "a'" * 200_000, '"""' + '\\n"' * 200_000, '"' + "\\n" * 200_000]
)
def test_a_long_string_without_end_is_refused_in_linear_time(text):
    assert refusal(f"a = {text}").reason


LINES = [
    *("[a]\n", "[a.b]\n", "[[a]]\n", "[[a.b]]\n", "[b]\n", "[a.b.c]\n", "[[a.b.c]]\n", "a.b = 1\n", "a.c = 1\n"),
    *("b.c = 1\n", "b = {c = 1}\n", "b.c.d = 2\n", "a = []\n", "a = [{}]\n", "c = 1\n", "b = {c.d = 1, c.e = 2}\n"),
    *("b = {c = {x=1}, c.e = 2}\n", "c.d.e=1\n", "# c\n", "\n"),
]
PIECES = [
    *("a", "b", "a.b", "a . b", '"q"', "'l'", " = ", "=", "}", "[", "]", ",", ", ", "\n", "\r\n", "1", "-1", "1_0"),
    *("1__0", "0x1F", "1.5", "1e3", "1.", "inf", "-nan", "true", "#c\n", " # c", "1979-05-27", "T07:32:00Z"),
    *(" 07:32:00.5-07:00", "2021-02-30", "é", '"""', '"""a\n b"""', "'''x''y'''", '"\\u00e9"', '"\\n"', "'", "\t"),
    *('"""\\\n  x"""', '""""', '"', "\\", "k = [1,\n 3, # c\n]\n", "k = {x = 1, y.z = 2}\n", "{}", "\x00", "\r", " "),
]
TOML_LIKE = (
    st.lists(st.sampled_from(LINES), max_size=7).map("".join)
    | st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
    | st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: "a = " + "".join(pieces))
)


@settings(max_examples=400, deadline=None)
@given(TOML_LIKE)
@example(CONFIG)
def test_any_text_reads_exactly_when_tomllib_reads_it(text):
    tomllib = pytest.importorskip("tomllib")
    try:
        document = read(text)
    except SourceError:
        with pytest.raises(ValueError):
            tomllib.loads(text)
        return
    assert same(document.root.plain(), tomllib.loads(text))
    for node in scalars(document.root):
        assert text[node.span.start : node.span.end] == node.raw


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_reads_or_raises_source_error(text):
    try:
        document = read(text)
    except SourceError:
        return
    assert document.root.is_mapping
