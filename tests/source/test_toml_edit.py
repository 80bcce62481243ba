"""Edits of TOML change what they must and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.source.document import SourceError
from gpulint.source.edit import EditError, apply, change, remove_key, rename_key, set_key, set_keys
from gpulint.source.read import parse

TEXT = """# a run
title = "x"  # kept

[model]
name = "llama3"
flavor = "8B"

[training]
  local_batch_size = 8 # rows
  seq_len = 8192

[activation_checkpoint]
mode = 'selective'  # or full
[parallelism.pipeline]
degree = 1
"""


def edited(text, edits):
    return apply(text, edits)


def document(text=TEXT):
    return parse(text, "run.toml", "toml")


@pytest.mark.parametrize(
    ("values", "old", "new"),
    [
        ({"training.seq_len": 4096}, "seq_len = 8192", "seq_len = 4096"),
        ({"activation_checkpoint.mode": "full"}, "mode = 'selective'  # or full", 'mode = "full"  # or full'),
        ({"title": "y"}, 'title = "x"  # kept', 'title = "y"  # kept'),
        ({"training.compile": True}, "seq_len = 8192\n", "seq_len = 8192\n  compile = true\n"),
        ({"top": 1.5}, "# kept\n", "# kept\ntop = 1.5\n"),
        ({"model.list": [1, 2]}, 'flavor = "8B"\n', 'flavor = "8B"\nlist = [1, 2]\n'),
        ({"parallelism.pipeline.size": 2}, "degree = 1\n", "degree = 1\nsize = 2\n"),
    ],
)
def test_a_value_or_a_line_changes(values, old, new):
    assert TEXT.count(old) == 1
    assert edited(TEXT, change(document(), values)) == TEXT.replace(old, new)


def test_a_missing_table_goes_to_the_end():
    edits = set_keys(document(), {"compile.enable": True, "compile.parts": ["model"], "training.dtype": "bfloat16"})
    added = '\n[compile]\nenable = true\nparts = ["model"]\n'
    assert edited(TEXT, edits) == TEXT.replace("8192\n", '8192\n  dtype = "bfloat16"\n') + added


def test_a_table_that_only_a_header_below_mentions_gets_its_own():
    assert edited(TEXT, set_key(document(), "parallelism.data", 8)).endswith("[parallelism]\ndata = 8\n")


def test_an_inline_table():
    text = "a = { b = 1 }\nc = {}\n"
    assert edited(text, set_keys(document(text), {"a.b": 2, "a.d": 3, "c.e": 4})) == (
        "a = { b = 2, d = 3 }\nc = { e = 4 }\n"
    )


def test_a_line_is_taken_out():
    assert edited(TEXT, remove_key(document(), "training.local_batch_size")) == TEXT.replace(
        "  local_batch_size = 8 # rows\n", ""
    )


def test_a_key_is_renamed():
    assert "  length = 8192\n" in edited(TEXT, rename_key(document(), "training.seq_len", "length"))


def test_a_file_without_a_last_line_break():
    assert (
        edited("[a]\nb = 1", set_keys(document("[a]\nb = 1"), {"a.c": 2, "d.e": 3}))
        == "[a]\nb = 1\nc = 2\n\n[d]\ne = 3\n"
    )


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b = 1\n", {"a.c": 2}),
        ("[a]\nb = 1\n", {"a": 1}),
        ("a = 1\n", {"a.b": 1}),
        ("a = {b = 1}\n", {"a.c.d": 1}),
        ("[[a]]\nb = 1\n", {"a.c": 1}),
        ("a = 1\n", {"a": None}),
    ],
)
def test_what_cannot_be_kept_is_refused(text, values):
    with pytest.raises(EditError):
        change(document(text), values)


NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.booleans(), st.integers(-99, 99), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)
)
LINES = st.lists(
    st.one_of(
        st.builds("{} = 1  # note".format, NAMES),
        st.builds("[{}]".format, NAMES),
        st.builds("[{}.{}]".format, NAMES, NAMES),
        st.builds("{}.{} = [1,\n 2]".format, NAMES, NAMES),
        st.builds("{} = {{ x = 1 }}".format, NAMES),
        st.just("# a comment"),
    ),
    max_size=6,
)


@given(LINES, st.lists(NAMES, min_size=1, max_size=3), SCALARS)
def test_an_edit_is_exact_or_refused(lines, names, value):
    """Every line of before that holds no changed value is there afterwards, and the file says what was asked."""
    text = "\n".join([*lines, ""])
    try:
        parsed = document(text)
    except SourceError:
        return
    try:
        edits = set_key(parsed, ".".join(names), value)
    except EditError:
        return
    after = edited(text, edits)
    assert document(after).root.find(".".join(names)).value.plain() == value
    before, now = Counter(text.splitlines()), Counter(after.splitlines())
    assert sum((before - now).values()) <= 1
