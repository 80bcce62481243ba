"""What the writer writes, PyYAML and our reader read back; it writes in the file's own indentation."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from comparison import same
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpulint.source.edit import yaml_writer
from gpulint.source.edit.yaml_writer import Style
from gpulint.source.read import parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=7) | st.sampled_from(
    [
        "no",
        "y",
        "2e-4",
        "1e3",
        "1_0",
        "0o7",
        "12:30",
        "=",
        "<<",
        "~",
        "- a",
        "a: b",
        "a #b",
        "---",
        "...",
        "%a",
        "{",
        "}",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
BLOCKS = st.lists(TREES, min_size=1, max_size=3) | st.dictionaries(TEXTS, TREES, min_size=1, max_size=3)
STYLES = st.builds(Style, st.integers(1, 5), st.integers(0, 5))


def read_back(text):
    """What PyYAML reads, which must be what our reader does; the types show in its `repr`."""
    ours = parse(text, "a.yaml", "yaml")
    assert not ours.comments
    theirs = yaml.safe_load(text)
    assert same(ours.root.plain(), theirs)
    return theirs


@settings(max_examples=150, deadline=None)
@given(BLOCKS, STYLES, st.integers(0, 7))
@example({"a": {"b": [{"c": [1]}, [2]]}}, Style(3, 0), 5)
@example(["}", {"}": "{"}], Style(2, 2), 0)
@example([10**20], Style(2, 0), 0)
def test_a_block_reads_back(value, style, indent):
    lines = yaml_writer.block(value, indent, style)
    assert all(line.startswith(" " * indent) for line in lines)
    assert len(lines[0]) - len(lines[0].lstrip(" ")) == indent
    assert repr(read_back("\n".join(lines) + "\n")) == repr(value)


@settings(max_examples=150, deadline=None)
@given(TREES, TEXTS)
@example([[], {}, {"": None}], "}")
def test_one_line_reads_back(value, name):
    assert repr(read_back(f"k: {yaml_writer.flow(value)}\n")) == repr({"k": value})
    assert read_back(f"{{j: 1, {yaml_writer.key(name, flow=True)}: 2}}\n") == {"j": 1} | {name: 2}
    assert read_back(f"{yaml_writer.key(name)}: 2\n") == {name: 2}
    if not value or not isinstance(value, list | dict):
        assert repr(read_back(f"k: {yaml_writer.scalar(value)}\n")) == repr({"k": value})


def test_lists_and_mappings_are_indented_as_in_the_file():
    value = {"a": [{"b": 1, "c": [2]}], "d": {"e": 3}}
    assert yaml_writer.block(value, 1, Style(3, 0)) == [
        *(" a:", " - b: 1", "   c:", "   - 2"),
        *(" d:", "    e: 3"),
    ]
    assert yaml_writer.block(value, 0, Style(2, 4)) == [
        *("a:", "    - b: 1", "      c:", "          - 2"),
        *("d:", "  e: 3"),
    ]
    assert yaml_writer.block([], 2, Style()) == []


@pytest.mark.parametrize(("value", "needed"), [("bf16", False), (8, False), (None, False), (1e-5, True), ("yes", True)])
def test_a_word_or_a_number_is_written_without_a_library(value, needed):
    code = f"import sys, gpulint.source.edit.yaml_writer as w\nw.flow({value!r})\nprint('ruamel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(needed)
