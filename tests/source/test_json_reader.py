from __future__ import annotations

import json

import pytest
from comparison import same, scalars
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.source.document import Document, SourceError
from gpulint.source.limits import MAX_DEPTH
from gpulint.source.read import parse


def read(text: str) -> Document:
    return parse(text, "a.json", "json")


def refusal(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(text)
    return caught.value


def test_values_and_spans():
    text = '\ufeff{\r\n  "zero": {"stage": 3, "é": [1.5, "x"]},\r\n  "bf16": null\r\n}\r\n'
    root = read(text).root
    assert root.plain() == {"zero": {"stage": 3, "é": [1.5, "x"]}, "bf16": None}
    assert root.find("zero.stage").value.span[:4] == (2, 21, 2, 22)
    assert root.find("zero").value.span[:4] == (2, 11, 2, 40)
    assert root.find("bf16").key.span[:4] == (3, 3, 3, 9)
    assert root.span[:4] == (1, 1, 4, 2)
    assert root.find("zero.é").value.items()[1].raw == '"x"'


def test_duplicates_name_what_is_lost_and_what_counts():
    document = read('{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}')
    assert document.root.plain() == {"a": 2, "b": {"c": 2}}
    found = [(each.key, each.lost.column, each.kept.column) for each in document.duplicates]
    assert found == [("a", 2, 33), ("c", 16, 24)]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "file ends"),
        ('{"a":', 1, 6, "file ends"),
        ("// x\n1", 1, 1, "no comments"),
        ('{"a": 1 // x\n}', 1, 9, "no comments"),
        ('{"a": 1} # x', 1, 10, "no comments"),
        ('{\n "a": 1,\n}', 2, 8, "comma before '}'"),
        ("[1,]", 1, 3, "comma before ']'"),
        ("{a: 1}", 1, 2, "key in double quotes"),
        ("{'a': 1}", 1, 2, "key in double quotes"),
        ('{"a" 1}', 1, 6, "expected ':'"),
        ('{"a": 1 "b": 2}', 1, 9, "expected ',' or '}'"),
        ("[1", 1, 3, "expected ',' or ']'"),
        ("[1}", 1, 3, "expected ',' or ']'"),
        ("tru", 1, 1, "expected a value"),
        ("01", 1, 2, "after the end"),
        ("1 1", 1, 3, "after the end"),
        ("+1", 1, 1, "expected a value"),
        ('"abc', 1, 1, "closing quote"),
        ('"a\nb"', 1, 3, "end on its line"),
        (r'"a\q"', 1, 3, "unknown escape"),
        (r'"\u12"', 1, 2, "unknown escape"),
        ('"\\', 1, 2, "unknown escape"),
    ],
)
def test_errors_name_their_place(text, line, column, words):
    error = refusal(text)
    assert (error.line, error.column) == (line, column)
    assert words in error.reason


def test_pythons_numbers_pass():
    assert repr(read("[NaN, Infinity, -Infinity, 1e5, -0, -0.0, 1E-3]").root.plain()) == (
        "[nan, inf, -inf, 100000.0, 0, -0.0, 0.001]"
    )


def test_a_long_integer_stays_its_text():
    assert read("9" * 20).root.value == 10**20 - 1
    assert read("9" * 5000).root.value == "9" * 5000


def test_no_string_holds_a_surrogate():
    assert read(r'"\ud83d\ude00 \ud800 \\ud800"').root.value == "😀 \ufffd \\ud800"


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_a_deep_nest_is_refused(opening):
    assert "deeper" in refusal(opening * (60_000 // len(opening))).reason


def test_depth_is_capped_exactly():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read(deep).root.is_sequence
    assert "deeper" in refusal(f"[{deep}]").reason


def test_too_many_values_are_refused():
    assert "more than 200000" in refusal("[" + "1," * 200_001 + "1]").reason


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(TREES, st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_every_value_reads_as_json_loads_and_spans_read_to_their_scalar(tree, ascii_only, indent):
    text = json.dumps(tree, ensure_ascii=ascii_only, indent=indent)
    root = read(text).root
    assert same(root.plain(), json.loads(text))
    for node in scalars(root):
        assert text[node.span.start : node.span.end] == node.raw
        assert same(read(node.raw).root.value, node.value)


PIECES = ["{", "}", "[", "]", ",", ":", '"a"', '"', "1", "-", ".5", "e3", "true", "null", "NaN", " ", "\n", "\\u00e9"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=20))
def test_any_text_reads_exactly_when_json_loads_reads_it(text):
    try:
        ours = read(text).root.plain()
    except SourceError:
        with pytest.raises(ValueError):
            json.loads(text.removeprefix("\ufeff"))
        return
    assert same(ours, json.loads(text.removeprefix("\ufeff")))
