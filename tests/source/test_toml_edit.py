from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.source.document import SourceError
from gpulint.source.edit.edit import EditError, apply, change
from gpulint.source.edit.toml_edit import key_text, text_of
from gpulint.source.read import parse

TOML = """\
# a run
title = 'plain'  # the title

[model]
name = "llama3"
flavor = "8B"   # the size

[training]
  seq_len = 8_192
  steps = 10
  data.path = "a"

[empty]

[[stage]]
n = 1
"""


def edited(values=None, remove=(), rename=None, text=TOML):
    return apply(text, change(parse(text, "a.toml", "toml"), values, remove, rename))


def replaced(old, new, text=TOML):
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("title", "other", "'plain'", "'other'"),
        ("title", "it's", "'plain'", '"it\'s"'),
        ("model.flavor", "70B", '"8B"', '"70B"'),
        ("training.seq_len", 4096, "8_192", "4096"),
        ("training.compile", True, "steps = 10\n", "steps = 10\n  compile = true\n"),
        ("training.data.path", "b", '"a"', '"b"'),
        ("model.tied", False, "# the size\n", "# the size\ntied = false\n"),
        ("empty.x", [1, "a"], "[empty]\n", '[empty]\nx = [1, "a"]\n'),
        ("seed", 1, "# the title\n", "# the title\nseed = 1\n"),
        ("compile.enable", True, "n = 1\n", "n = 1\n\n[compile]\nenable = true\n"),
        ("model.rope.base", 1e-5, "n = 1\n", "n = 1\n\n[model.rope]\nbase = 1e-05\n"),
        ("a b", {"c": {"d": 1}}, "n = 1\n", 'n = 1\n\n["a b"]\nc = {d = 1}\n'),
    ],
)
def test_setting_a_key_changes_only_what_it_must(key, value, old, new):
    assert edited({key: value}) == replaced(old, new)


def test_several_changes_at_once():
    values = {"model.a": 1, "model.b": 2, "new.c": 3, "new.d": 4}
    expected = replaced("# the size\n", "# the size\na = 1\nb = 2\n", replaced("  steps = 10\n", ""))
    expected += "\n[new]\nc = 3\nd = 4\n"
    assert edited(values, remove=["training.steps"]) == expected


def test_inline_tables_stay_on_their_line():
    text = "a = { b = 1, c = 2 } # d\n"
    assert edited({"a.e": 3}, text=text) == "a = { b = 1, c = 2, e = 3 } # d\n"
    assert edited(remove=["a.b"], text=text) == "a = { c = 2 } # d\n"
    assert edited(remove=["a.c"], text=text) == "a = { b = 1 } # d\n"


def test_keys_are_renamed_in_place():
    assert edited(rename={"training.steps": "max_steps"}) == replaced("steps", "max_steps")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "[a]\nb = 1\n"),
        ("\ufeffc = 1\r\n", "\ufeffc = 1\r\n\r\n[a]\r\nb = 1\r\n"),
        ("c = 1", "c = 1\n\n[a]\nb = 1"),
        ("[a]", "[a]\nb = 1"),
        ("[a]\r\n# x\r\n[c]\r\n", "[a]\r\nb = 1\r\n# x\r\n[c]\r\n"),
    ],
)
def test_line_endings_and_the_last_line_stay_as_they_are(text, expected):
    assert edited({"a.b": 1}, text=text) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"values": {"title.x": 1}},
        {"values": {"stage.n": 2}},
        {"values": {"model": 3}},
        {"values": {"title": None}},
        {"remove": ["model"]},
        {"remove": ["nothing"]},
        {"rename": {"model.name": "flavor"}},
    ],
)
def test_what_cannot_be_written_is_refused(changes):
    with pytest.raises(EditError):
        edited(**changes)


KEYS = st.text(string.ascii_lowercase + " é", min_size=1, max_size=5)
SCALARS = (
    st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def files(draw):
    """A file of plain keys and tables, with comments, and the same as a mapping."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    top = draw(TABLES)
    tables = draw(st.dictionaries(KEYS.filter(lambda key: key not in top), TABLES, max_size=3))
    lines = ["# first"] if draw(st.booleans()) else []
    for name, table in [("", top), *tables.items()]:
        lines += [f"[{key_text(name)}]  # table"] if name else []
        for key, value in table.items():
            lines.append(f"{draw(st.sampled_from(['', '  ']))}{key_text(key)} = {text_of(value)}  # {len(lines)}")
    return newline.join([*lines, ""] if draw(st.booleans()) else lines), {**top, **tables}


@settings(max_examples=150)
@given(files(), KEYS, VALUES, st.data())
def test_any_edit_of_a_toml_file_is_exact_and_leaves_other_lines(file, key, value, data):
    text, tree = file
    table = data.draw(st.sampled_from(["", *(name for name, item in tree.items() if isinstance(item, dict))]))
    dotted = f"{table}.{key}" if table else key
    document = parse(text, "a.toml", "toml")
    holder = tree[table] if table else tree
    try:
        after = apply(text, change(document, {dotted: value}))
    except EditError:
        assert not table
        assert isinstance(tree.get(key), dict)
        return
    expected = {**tree, table: {**holder, key: value}} if table else {**tree, key: value}
    assert parse(after, "a.toml", "toml").root.plain() == expected
    lines = iter(after.split("\n"))
    kept = [line for line in text.split("\n") if key not in holder or not line.lstrip().startswith(key_text(key))]
    assert all(line in lines for line in kept[:-1])
    assert ("\r\n" in after) <= ("\r\n" in text)
    if key in holder:
        gone = apply(text, change(document, remove=[dotted]))
        assert key not in (parse(gone, "a.toml", "toml").root.plain().get(table, {}) if table else {})


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            ["a = 1\n", "[a]\n", "[a.b]\n", "[[a]]\n", "b = {c = 1}\n", "a.b = 2\n", "# c\n", "\r\n", "b = [\n1,\n]\n",
             "  ", "c = '''\nx\n'''\n", "\ufeff", "c.d.e = 1"]
        ),
        max_size=6,
    ).map("".join),
    st.sampled_from(["a", "a.b", "b.c", "c.d.e", "c.d", "z", "z.y.x"]),
)  # fmt: skip
def test_an_edit_of_any_toml_text_is_exact_or_refused(text, key):
    try:
        document = parse(text, "a.toml", "toml")
    except SourceError:
        return
    for changes in ({"values": {key: 7}}, {"remove": [key]}, {"rename": {key: "q r"}}):
        try:
            edits = change(document, **changes)
        except EditError:
            continue
        read = parse(apply(text, edits), "a.toml", "toml").root
        found = read.find(key)
        if "values" in changes:
            assert found.value.value == 7
        else:
            assert found is None
