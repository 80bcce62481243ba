from __future__ import annotations

import json

import pytest
import yaml

from gpulint.source.edit.edit import EditError, apply, change, remove_key, rename_key, set_key, set_keys
from gpulint.source.edit.replacement import Edit
from gpulint.source.read import parse

YAML = """\
# a run
base_model: org/model   # the model
load_in_4bit: true

lora_target_modules:
  - q_proj  # query
  - v_proj  # value
# the rate
learning_rate: 2e-4
fsdp_config:
    wrap: Block

    offload: no  # slow
prompt: |
  hi # no
  there

empty:
flow: {a: 1, b: [x, y]}
last: null
wandb_project:
"""


def edited(text: str, *changes, syntax: str = "yaml", after: str | None = None, **values) -> str:
    """The text after one call of `set_keys`."""
    document = parse(text, f"a.{syntax}", syntax)
    keys = dict(changes) | {key.replace("__", "."): value for key, value in values.items()}
    return apply(text, set_keys(document, keys, after=after))


def removed(text: str, key: str, syntax: str = "yaml") -> str:
    return apply(text, remove_key(parse(text, f"a.{syntax}", syntax), key))


def renamed(text: str, key: str, new: str, syntax: str = "yaml") -> str:
    return apply(text, rename_key(parse(text, f"a.{syntax}", syntax), key, new))


def replaced(old: str, new: str, text: str = YAML) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("base_model", "org/other", "org/model ", "org/other "),
        ("learning_rate", 2e-5, "2e-4", "2.0e-05"),
        ("learning_rate", 0.0002, "2e-4", "0.0002"),
        ("load_in_4bit", False, "4bit: true", "4bit: false"),
        ("load_in_4bit", None, "4bit: true", "4bit: null"),
        ("fsdp_config.offload", True, "offload: no", "offload: true"),
        ("flow.a", "x, y", "a: 1", 'a: "x, y"'),
        ("flow.b", ["z"], "[x, y]", "[z]"),
        ("flow.c", {"d": True}, "[x, y]}", "[x, y], c: {d: true}}"),
        ("flow", {"a": 1, "b": 2}, "[x, y]", "2"),
        ("last", "", "last: null", 'last: ""'),
        ("wandb_project", "p", "project:", "project: p"),
        ("empty", {"a": [1]}, "empty:\n", "empty:\n    a:\n      - 1\n"),
        ("empty.a.b", 1, "empty:\n", "empty:\n    a:\n        b: 1\n"),
        ("fsdp_config.state", "FULL", "# slow\n", "# slow\n    state: FULL\n"),
        ("prompt", "hi", "|\n  hi # no\n  there", "hi"),
        ("base_model", ["a", "b"], " org/model   # the model\n", "   # the model\n  - a\n  - b\n"),
        ("micro_batch_size", 1, "[x, y]}\n", "[x, y]}\nmicro_batch_size: 1\n"),
        ("lora_target_modules", "all-linear", "\n  - q_proj  # query\n  - v_proj  # value", " all-linear"),
        ("lora_target_modules", ["q_proj", "v_proj", "k"], "# value\n", "# value\n  - k\n"),
        ("lora_target_modules", ["k", "q_proj", "v_proj"], "modules:\n", "modules:\n  - k\n"),
        ("lora_target_modules", ["v_proj"], "  - q_proj  # query\n", ""),
        ("lora_target_modules", [], "\n  - q_proj  # query\n  - v_proj  # value", " []"),
        ("fsdp_config", {"wrap": "X", "offload": False}, "Block", "X"),
        ("fsdp_config", {"wrap": "Block"}, "    offload: no  # slow\n", ""),
    ],
)
def test_setting_a_key_changes_only_what_it_must(key, value, old, new):
    assert edited(YAML, (key, value)) == replaced(old, new)


def test_a_value_that_is_there_needs_no_edit():
    assert set_key(parse(YAML, "a", "yaml"), "load_in_4bit", True) == []
    assert set_key(parse(YAML, "a", "yaml"), "learning_rate", "2e-4") == []
    assert edited("a: 1", a=True) == "a: true"
    assert edited("a: 1", a=1.0) == "a: 1.0"


def test_several_keys_at_once_are_in_order_and_inserts_at_one_place_are_one_edit():
    document = parse(YAML, "a.yaml", "yaml")
    values = {"z.a": 1, "y": 2, "z.b": [3], "load_in_4bit": False}
    edits = set_keys(document, values)
    assert [edit.text for edit in edits] == ["false", "\nz:\n    a: 1\n    b:\n      - 3\ny: 2"]
    assert parse(apply(YAML, edits), "a", "yaml").root.find("z.b").value.plain() == [3]
    assert all(edit.path == "a.yaml" for edit in edits)


def test_a_new_key_can_follow_a_related_one():
    assert edited(YAML, after="learning_rate", scheduler="cosine") == replaced("2e-4\n", "2e-4\nscheduler: cosine\n")
    assert edited(YAML, after="nowhere", x=1) == edited(YAML, x=1)
    assert edited('{"a": 1, "b": 2}', syntax="json", after="a", c=3) == '{"a": 1, "c": 3, "b": 2}'


def test_a_parent_that_is_also_replaced_keeps_its_lines_in_order():
    text = "a:\n  b: 1\nc:\n"
    values = (("a.d", 2), ("c", {"e": 3}), ("f", 4))
    assert edited(text, *values) == "a:\n  b: 1\n  d: 2\nf: 4\nc:\n  e: 3\n"
    assert edited("a:\n  b:\n", ("a.b", 1), ("a.c", 2), ("d", 3)) == "a:\n  b: 1\n  c: 2\nd: 3\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a:\n  b: 1\n"),
        ("# c", "# c\na:\n  b: 1\n"),
        ("# c\r\n", "# c\r\na:\r\n  b: 1\r\n"),
        ("---\n", "---\na:\n  b: 1\n"),
        ("\ufeff", "\ufeffa:\n  b: 1\n"),
        ("c: 1", "c: 1\na:\n  b: 1"),
        ("c: 1\r\n", "c: 1\r\na:\r\n  b: 1\r\n"),
        ("\ufeffc: 1\n", "\ufeffc: 1\na:\n  b: 1\n"),
        ("c: 1  # d\n\n\n", "c: 1  # d\na:\n  b: 1\n\n\n"),
        ("c: |+\n  x\n\n\n", "c: |+\n  x\n\n\na:\n  b: 1\n"),
        ("d: 1\nc: |\n  x", "d: 1\na:\n  b: 1\nc: |\n  x"),
        ("  c: 1\n", "  c: 1\n  a:\n    b: 1\n"),
        ("c: 1\n---\nd: 2\n", "c: 1\na:\n  b: 1\n---\nd: 2\n"),
        ("c:\n", "c:\na:\n  b: 1\n"),
        ("{}", "{a: {b: 1}}"),
        ("{c: 1}", "{c: 1, a: {b: 1}}"),
        ("{\n  c: 1\n}\n", "{\n  c: 1,\n  a: {b: 1}\n}\n"),
        ("{c: 1,}", "{c: 1, a: {b: 1},}"),
        ("{c}", "{c, a: {b: 1}}"),
    ],
)
def test_a_new_key_in_any_kind_of_yaml_file(text, expected):
    assert edited(text, a__b=1) == expected


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("a: 1\nb: 2  # c\nc: 3\n", "b", "a: 1\nc: 3\n"),
        ("a: 1\nb: 2", "b", "a: 1"),
        ("a: 1\r\nb: 2", "b", "a: 1"),
        ("a: 1\na: 2\nb: 3\na: 4", "a", "b: 3"),
        ("a: 1\n", "a", "{}\n"),
        ("a:\n  b: 1\nc: 2\n", "a.b", "a: {}\nc: 2\n"),
        ("a:\n  b: 1\n  c: 2\n", "a.b", "a:\n  c: 2\n"),
        ("a:\n  - x\n  - y # z\n# w\nb: 1\n", "a", "# w\nb: 1\n"),
        ("a: |\n  x\n\nb: 1\n", "a", "\nb: 1\n"),
        ("{a: 1, b: 2, c: 3}", "b", "{a: 1, c: 3}"),
        ("{a: 1, b: 2, c: 3}", "c", "{a: 1, b: 2}"),
        ("{a: 1, a: 2, b: 3, a: 4, a: 5}", "a", "{b: 3}"),
        ("{a: 1}", "a", "{}"),
        ("{\n  # x\n  a: 1, # c\n  # y\n  b: 2\n}\n", "a", "{\n  # x\n  # y\n  b: 2\n}\n"),
        ("x: &x {k: 1}\nb: *x\n", "b", "x: &x {k: 1}\n"),
    ],
)
def test_removing_a_yaml_key(text, key, expected):
    assert removed(text, key) == expected


JSON = """\
{
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {}
    },
    "buckets": [1, 2],
    "bf16": {"enabled": true}
}
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("zero_optimization.stage", 3, "2,\n", "3,\n"),
        (
            "zero_optimization.offload_optimizer.device",
            "cpu",
            "{}",
            '{\n            "device": "cpu"\n        }',
        ),
        (
            "zero_optimization.x",
            {"y": [1], "z": [{"q": None}]},
            '"offload_optimizer": {}\n',
            """\
"offload_optimizer": {},
        "x": {
            "y": [1],
            "z": [
                {
                    "q": null
                }
            ]
        }
""",
        ),
        ("bf16.auto", 1e-5, "true}", 'true, "auto": 1e-05}'),
        ("bf16.enabled", "auto", "true", '"auto"'),
        ("new", True, "true}\n", 'true},\n    "new": true\n'),
        ("buckets", [3], "[1, 2]", "[3]"),
        ("buckets", {"a": 1}, "[1, 2]", '{\n        "a": 1\n    }'),
    ],
)
def test_setting_a_json_key(key, value, old, new):
    assert edited(JSON, (key, value), syntax="json") == replaced(old, new, JSON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{"a": {"b": 1}}'),
        ("{ }\n", '{"a": {"b": 1}}\n'),
        ('{"c":1}', '{"c":1,"a":{"b":1}}'),
        ('{"c":1,"d":2}', '{"c":1,"d":2,"a":{"b":1}}'),
        ('{"c" : 1}', '{"c" : 1, "a" : {"b": 1}}'),
        ('\ufeff{"c": 1}', '\ufeff{"c": 1, "a": {"b": 1}}'),
        ('{\n\t"c": 1\n}', '{\n\t"c": 1,\n\t"a": {\n\t\t"b": 1\n\t}\n}'),
        ('{\r\n  "c": 1\r\n}', '{\r\n  "c": 1,\r\n  "a": {\r\n    "b": 1\r\n  }\r\n}'),
        ('{"c": 1, "a": {}}', '{"c": 1, "a": {"b": 1}}'),
        ('{"c": 1, "a": null}', '{"c": 1, "a": {"b": 1}}'),
    ],
)
def test_a_new_key_in_any_kind_of_json_file(text, expected):
    assert edited(text, a__b=1, syntax="json") == expected


def test_removing_json_keys():
    assert removed(JSON, "zero_optimization", "json") == JSON[:2] + JSON[JSON.index('    "buckets') :]
    assert removed(JSON, "bf16", "json") == replaced(',\n    "bf16": {"enabled": true}', "", JSON)
    assert removed(JSON, "bf16.enabled", "json") == replaced('{"enabled": true}', "{}", JSON)
    assert removed('{"a#": 1, "b": "#"}', "b", "json") == '{"a#": 1}'


def test_renaming_keys():
    assert renamed(YAML, "fsdp_config.wrap", "policy") == replaced("wrap:", "policy:")
    assert renamed(YAML, "last", "yes") == replaced("last:", '"yes":')
    assert renamed(YAML, "flow.a", "c d") == replaced("a: 1", "c d: 1")
    assert renamed(JSON, "bf16.enabled", 'a"', "json") == replaced('"enabled"', '"a\\""', JSON)
    assert renamed("a: 1\na: 2\n", "a", "b") == "b: 1\nb: 2\n"
    with pytest.raises(EditError, match="already a key"):
        renamed(YAML, "last", "empty")


def test_a_change_sets_removes_and_renames_at_once():
    text = "a: 1\nb: 2\nc: 3\n"
    edits = change(parse(text, "a", "yaml"), {"d": 4}, remove=["c"], rename={"a": "z"})
    assert apply(text, edits) == "z: 1\nb: 2\nd: 4\n"
    edits = change(parse(JSON, "a", "json"), {"bf16.x": 1}, remove=["buckets"])
    assert json.loads(apply(JSON, edits))["bf16"] == {"enabled": True, "x": 1}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("x: &x {k: 1}\ny: {<<: *x}\n", "y.k", 2),
        ("x: &x {k: 1}\ny: *x\n", "y.k", 2),
        ("x: &x\n  k: 1\ny: *x\n", "x.k", 2),
        ("x: &x 1\ny: *x\n", "x", 2),
        ("a: 1\n", "a.b", 2),
        ("- a\n", "a", 2),
        ("a: 1\n", "b", {1: 2}),
        ("a: 1\n", "b", {1, 2}),
        ("a: 1\n", "b", 10**30),
        ("null\n", "a", 1),
        ("a: 1\n...\n# end\n", "b", "\ud800"),
        ("? a\n", "a", 1),
    ],
)
def test_what_cannot_be_kept_is_refused(text, key, value):
    with pytest.raises(EditError):
        set_key(parse(text, "a.yaml", "yaml"), key, value)


def test_overrides_of_merges_and_aliases_on_their_own_line_are_allowed():
    text = "x: &x\n  k: 1\ny:\n  <<: *x\nz: *x  # all\n"
    assert edited(text, y__l=2) == replaced("<<: *x\n", "<<: *x\n  l: 2\n", text)
    assert edited(text, z="none") == replaced("z: *x", "z: none", text)


@pytest.mark.parametrize(
    "call",
    [
        lambda document: remove_key(document, "none"),
        lambda document: rename_key(document, "none", "x"),
        lambda document: change(document, remove=["a", "a.b"]),
        lambda document: change(document, {"a.b": 2}, remove=["a"]),
        lambda document: change(document, {"a": 2, "a.b": 3}),
        lambda document: change(document, {"n": 2, "n.b": 3}),
        lambda document: change(document, remove=["a"], rename={"a": "c"}),
    ],
)
def test_contradictions_are_refused(call):
    with pytest.raises(EditError):
        call(parse("a:\n  b: 1\nd: 1\n", "a.yaml", "yaml"))


def test_edits_that_overlap_or_miss_the_text_are_refused():
    assert apply("abc", [Edit("a", 2, 3, "C"), Edit("a", 0, 1, "A"), Edit("a", 1, 1, "-")]) == "A-bC"
    for edits in ([(0, 2), (1, 3)], [(2, 4)], [(2, 1)]):
        with pytest.raises(EditError):
            apply("abc", [Edit("a", start, end, "") for start, end in edits])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain text", "plain text"),
        ("true", '"true"'),
        ("012", '"012"'),
        ("1:30", '"1:30"'),
        ("2e-4", "2e-4"),
        ("2.0e-4", '"2.0e-4"'),
        ("2024-01-31", '"2024-01-31"'),
        ("2024-1-3 1:02:03", '"2024-1-3 1:02:03"'),
        ("2024-1-3", "2024-1-3"),
        ("0x_", '"0x_"'),
        ("9" * 21, f'"{"9" * 21}"'),
        ("", '""'),
        ("~", '"~"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        ("a#b", "a#b"),
        ("- a", '"- a"'),
        ("-a", "-a"),
        ("*", '"*"'),
        (" a", '" a"'),
        ('say: "x"', "'say: \"x\"'"),
        ("it's: \\", '"it\'s: \\\\"'),
        ("a\nb", '"a\\nb"'),
        ("tab\t", '"tab\\t"'),
        ("\u2028\x7f", '"\\L\\x7F"'),
        ("=", '"="'),
        ("<<", '"<<"'),
        ("/path/to-x_1.y", "/path/to-x_1.y"),
        ("é😀", "é😀"),
        (1e-5, "1.0e-05"),
        (1e16, "1.0e+16"),
        (1.5e-7, "1.5e-07"),
        (float("inf"), ".inf"),
        (-0.0, "-0.0"),
        (3, "3"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_values_are_quoted_only_where_pyyaml_needs_it(value, written):
    text = edited("a: old\n", a=value)
    assert text == f"a: {written}\n"
    assert yaml.safe_load(text) == {"a": value}
