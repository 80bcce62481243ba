"""Where the cursor (`|`) stands, in texts that no parser takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.editor.scan import scan

from .texts import AXOLOTL, DEEPSPEED, SCRIPT


def at(marked: str, syntax: str):
    offset = marked.index("|")
    text = marked.replace("|", "", 1)
    spot = scan(text, offset, syntax)
    return None if spot is None else (spot.steps, spot.key, text[spot.start : spot.end], set(spot.others))


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("a: 1\nmicro_|\nb: 2\n", ((), "", "micro_", {"a", "b"})),
        ("a: 1\n|\nb: 2\n", ((), "", "", {"a", "b"})),
        ("a: 1\nopt: ada|m # why\n", ((), "opt", "adam", {"a", "opt"})),
        ("d:\n  - path: x\n    ty|\n  - path: y\nb: 2\n", (("d", 0), "", "ty", {"path"})),
        ("d:\n- path: x\n  ty|\n- path: y\n", (("d", 0), "", "ty", {"path"})),
        ("d:\n- path: x\n- |\nb: 2\n", (("d", 0), "", "", set())),
        ("x:\n  y:\n    z: 1\n  w:\n    |", (("x", "w"), "", "", set())),
        ("x:\n  y:\n    - z: 1\n  q|", (("x",), "", "q", {"y"})),
        ("a: 1 # no|\n", None),
        ("a: [1, |]\n", None),
        ('{"a": {"b": 1, "c|"}}', (("a",), "", "c", {"b"})),
    ],
)
def test_yaml(text, spot):
    assert at(text, "yaml") == spot


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ('{"z": {"stage": 3, "|"}, "a": 1}', (("z",), "", "", {"stage"})),
        ('{"z": {"stage": |}, "a": 1}', (("z",), "stage", "", {"stage"})),
        ('{"z": {"stage": 3}, |}', ((), "", "", {"z"})),
        ('{"z": {"o": {"device": "c|pu"}}}', (("z", "o"), "device", "cpu", {"device"})),
        ('{\n  "a": 3,\n  "ze|\n}', ((), "", "ze", {"a"})),
        ('{\n  "a": 3,\n  |\n  "x": 1}', ((), "", "", {"a", "x"})),
        ('{"a": [1, |]}', None),
    ],
)
def test_json(text, spot):
    assert at(text, "json") == spot


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ('[model]\nname = "x"\n[a.b]\nst|\nq=1\n[c]\nr=1', (("a", "b"), "", "st", {"q"})),
        ('[model]\nname = "x|y"\n', (("model",), "name", "xy", set())),
    ],
)
def test_toml(text, spot):
    assert at(text, "toml") == spot


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("vllm serve x --max-mo|", ((), "", "--max-mo", set())),
        ("vllm serve x --dtype |", ((), "dtype", "", set())),
        ("vllm serve x --dtype=bf|16", ((), "dtype", "bf16", set())),
        ("# vllm serve x --d|", None),
    ],
)
def test_shell(text, spot):
    assert at(text, "shell") == spot


SAMPLES = {"yaml": AXOLOTL, "json": DEEPSPEED, "shell": SCRIPT, "toml": "[a.b]\nc = 1\n"}


@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 500), st.text(max_size=8))
def test_any_cursor_in_any_text_has_a_word_around_it_or_none(syntax, cut, typed):
    text = SAMPLES[syntax][:cut] + typed
    spot = scan(text, len(text), syntax)
    assert spot is None or 0 <= spot.start <= len(text) == spot.end
