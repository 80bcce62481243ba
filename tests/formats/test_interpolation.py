"""OmegaConf interpolation, as far as a file settles it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.formats.core.interpolation import interpolated
from gpulint.source.read import parse


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("a: 4\nb: ${a}\n", "b", 4),
        ("a: x\nb: ${a}/y\n", "b", "x/y"),
        ("m: {n: 2, k: '${.n}', o: {p: '${..n}'}}\n", "m.k", 2),
        ("m: {n: 2, o: {p: '${..n}'}}\n", "m.o.p", 2),
        ("a: 3\nb: ${multiply:${a}, 4}\n", "b", 12),
        ("a: 5\nb: ${divide_ceil:${a},2}\n", "b", 3),
        ("b: ${oc.env:X,7}\n", "b", 7),
        ("b: ${oc.env:X}\n", "b", "${oc.env:X}"),
        ("b: ${oc.select:nothing,false}\n", "b", False),
        ("a: ${b}\nb: ${a}\n", "a", "${b}"),
        ("a: ${missing}\n", "a", "${missing}"),
        ("a: [1, 2]\nb: ${a}\n", "b", [1, 2]),
        ("a: ${b}\nb: ${c}\nc: 1\n", "a", 1),
        ("a: ${now:%Y}\n", "a", "${now:%Y}"),
        ("a: ${div:1,0}\n", "a", "${div:1,0}"),
    ],
)
def test_values(text, key, expected):
    assert interpolated(parse(text, "c.yaml", "yaml")).root.find(key).value.plain() == expected


def test_a_value_stays_where_it_is_written():
    document = interpolated(parse("a: 4\nb: ${a}\n", "c.yaml", "yaml"))
    assert document.root.entry("b").value.span.line == 2


@given(st.text(alphabet="${}a.b:,1 ", max_size=30))
def test_no_text_breaks_it(text):
    document = parse('a: 1\nb: {a: 2}\nc: "' + text + '"\n', "c.yaml", "yaml")
    interpolated(document)
