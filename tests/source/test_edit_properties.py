from __future__ import annotations

import json
import string

import yaml
from comparison import same
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpulint.source.document import SourceError
from gpulint.source.edit.edit import EditError, apply, remove_key, rename_key, set_key
from gpulint.source.places import Places
from gpulint.source.read import parse

KEYS = st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=6) | st.sampled_from(["on", "a b", "é"])
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["yes", "1e3", "a: b", "#"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
TREES = st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)


@st.composite
def changes(draw, tree):
    """A dotted key, of a value or of none yet, and its path."""
    path = [draw(st.sampled_from(sorted(tree)) | KEYS)]
    node = tree.get(path[0])
    while isinstance(node, dict) and node and draw(st.booleans()):
        path.append(draw(st.sampled_from(sorted(node)) | KEYS))
        node = node.get(path[-1])
    return path


def with_change(tree, path, value):
    copy = dict(tree)
    copy[path[0]] = value if len(path) == 1 else with_change(copy[path[0]], path[1:], value)
    return copy


def without(tree, path):
    copy = dict(tree)
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(copy[path[0]], path[1:])
    return copy


def commented(text, draw):
    """The lines of block style YAML with comments between them and, where that is safe, behind them."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        indent = line[: len(line) - len(line.lstrip())]
        if line.endswith(":") and draw(st.booleans()):
            line += f"  # behind {number}"
        if draw(st.booleans()) and line.lstrip()[:1].isalpha():
            lines.append(f"{indent}# above {number}")
        lines.append(line)
    return draw(st.sampled_from(["\n", "\r\n"])).join([*lines, ""] if draw(st.booleans()) else lines)


@settings(max_examples=120, deadline=None)
@given(TREES, VALUES, st.data())
def test_setting_a_key_of_a_commented_yaml_file_changes_exactly_that(tree, value, data):
    indent = data.draw(st.sampled_from([2, 4]))
    text = yaml.safe_dump(tree, default_flow_style=False, indent=indent, width=10**6, sort_keys=False)
    text = commented(text, data.draw)
    assume("|" not in text)
    path = data.draw(changes(tree))
    before = parse(text, "a.yaml", "yaml")
    edits = set_key(before, ".".join(path), value)
    after = apply(text, edits)
    assert same(yaml.safe_load(after), with_change(tree, path, value))
    entry = before.root.find(".".join(path))
    if entry is None:
        kept = iter(after.splitlines())
        assert all(line in kept for line in text.splitlines())
    elif entry.value.is_scalar and not (value and isinstance(value, list | dict)) and entry.value.raw:
        assert after.startswith(text[: entry.value.span.start])
        assert after.endswith(text[entry.value.span.end :])
    elif not entry.value.is_mapping:
        outside = [
            each for each in before.comments if not entry.value.span.line <= each.line <= entry.value.span.end_line
        ]
        texts = [each.text for each in parse(after, "a.yaml", "yaml").comments]
        assert all(comment.text in texts for comment in outside)
    assert after.count("\r\n") == after.count("\n") or "\r\n" not in text


@settings(max_examples=80, deadline=None)
@given(TREES, st.data())
def test_removing_and_renaming_a_yaml_key_changes_exactly_that(tree, data):
    style = data.draw(st.sampled_from([False, None, True]))
    text = yaml.safe_dump(tree, default_flow_style=style, width=10**6, sort_keys=False)
    path = data.draw(changes(tree))
    document = parse(text, "a.yaml", "yaml")
    assume(document.root.find(".".join(path)))
    gone = apply(text, remove_key(document, ".".join(path)))
    assert same(yaml.safe_load(gone), without(tree, path))
    renamed = apply(text, rename_key(document, ".".join(path), "new name"))
    value = tree
    for name in path:
        value = value[name]
    assert same(yaml.safe_load(renamed), without(with_change(tree, [*path[:-1], "new name"], value), path))


@settings(max_examples=120, deadline=None)
@given(TREES, VALUES, st.data())
def test_json_files_change_exactly_at_the_key(tree, value, data):
    indent = data.draw(st.sampled_from([None, 2, 4, "\t"]))
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")])) if indent is None else None
    text = json.dumps(tree, indent=indent, separators=separators, ensure_ascii=False)
    path = data.draw(changes(tree))
    document = parse(text, "a.json", "json")
    after = apply(text, set_key(document, ".".join(path), value))
    assert same(json.loads(after), with_change(tree, path, value))
    if document.root.find(".".join(path)):
        gone = apply(text, remove_key(document, ".".join(path)))
        assert same(json.loads(gone), without(tree, path))


SNIPPETS = [
    *(
        "a",
        "b",
        "a: 1",
        "b: ",
        "- ",
        "\n",
        "\n",
        "\n  ",
        "\n  ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'x'",
        '"y"',
        "|\n  t",
        "|+\n  t\n\n",
    ),
    *(
        " # c",
        "# d\n",
        "&x ",
        "*x",
        "!t ",
        "? ",
        ": ",
        "a:\n  b: 1\n  c: 2\n",
        "---\n",
        "\r\n",
        "é",
        "{a: 1, b: 2}",
        "<<: ",
    ),
    *("x: &x {k: 1}\n", "b: 2\n", "c:\n", "c: [1, 2]\n", "c:\n- 1\n- 2\n", "\ufeff"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(SNIPPETS), max_size=8).map("".join),
    st.sampled_from(["a", "b", "c", "new", "a.b", "c.d", "x.k", "b.k"]),
    VALUES,
)
@example("? a\n: b: 1\n", "a", 1)
@example("{a, b}", "a", {"c": 1})
@example("{a: 1, # c\n b: 2}", "b", [1])
@example("- a: 1\n  b: 2\n", "a", 1)
@example("a: &x\n  b: 1\nc: *x\n", "a", "s")
@example("a: !t\n  b: 1\n", "a", "s")
@example("a:\n- 1\n# end", "a", [])
def test_an_edit_of_any_text_is_exact_or_refused(text, key, value):
    try:
        document = parse(text, "a.yaml", "yaml")
        loaded = list(yaml.safe_load_all(text.removeprefix("\ufeff"))) or [None]
    except (SourceError, yaml.YAMLError, ValueError):
        return
    head = key.partition(".")[0]
    for edit in (
        lambda: set_key(document, key, value),
        lambda: remove_key(document, key),
        lambda: rename_key(document, key, "z"),
        lambda: set_key(document, key, value, after="a"),
    ):
        try:
            edits = edit()
        except EditError:
            continue
        after = list(yaml.safe_load_all(apply(text, edits).removeprefix("\ufeff")))
        assert after[1:] == loaded[1:]
        assert others(after[0], head, "z") == others(loaded[0] or {}, head, "z")
        entry = document.root.find(key)
        if entry and "." not in key and not document.duplicates and not text.lstrip("\ufeff").startswith("{"):
            first, last = entry.key.span.line, max(entry.value.span.end_line, entry.key.span.line)
            lines = Places(text)
            assert all(first - 1 <= lines.at(each.start)[0] <= last for each in edits)
            assert all(lines.at(each.end)[0] <= last + 1 for each in edits)


def others(mapping, *names):
    return {name: value for name, value in mapping.items() if name not in names}
