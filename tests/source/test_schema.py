"""Trees against JSON Schemas: the quick yes is never wrong, and what jsonschema refuses is told at its place."""

from __future__ import annotations

import copy

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.rules.index import rule_files
from gpulint.source.schema import did_you_mean, first_fault, load_schema, plainly_fits
from gpulint.source.yaml.reader import read_yaml

RULES = [file.source for file in rule_files()]
SETTINGS = yaml.safe_load("""
gpu: t4
gpus: 3
headroom: 5%
select: [GPU1]
fail-on: never
preview: true
severity: {memory-tight: error}
per-file-ignores: {old/**: [GPU401]}
overrides: [{files: [a], gpus: 2}]
suppressions: [{file: a, rules: [b], reason: c}]
""")
ODD = st.sampled_from(
    [None, True, 0, 1, -1, 2.0, 2.5, "", "x", "error", "GPU101", "x" * 3000, [], ["x"], [1], {}, {"x": 1}]
)


def described(text, schema):
    fault = first_fault(read_yaml(text, "x.yaml").root, schema, "it")
    return fault and (fault.node.span.line, fault.node.span.column, fault.reason)


@pytest.mark.parametrize(("value", "schema"), [*((rule, "rule") for rule in RULES), (SETTINGS, "settings")])
def test_what_is_right_plainly_fits(value, schema):
    assert plainly_fits(value, load_schema(schema))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_plainly_fits_is_valid(data):
    name = data.draw(st.sampled_from(["rule", "settings"]))
    value = copy.deepcopy(data.draw(st.sampled_from(RULES)) if name == "rule" else SETTINGS)
    part = value
    while True:
        key = data.draw(st.sampled_from([*part, "other"]) if isinstance(part, dict) else st.integers(0, len(part) - 1))
        inner = part.get(key) if isinstance(part, dict) else part[key]
        if not inner or not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        part = inner
    part[key] = data.draw(ODD)
    valid = jsonschema.Draft202012Validator(load_schema(name)).is_valid(value)
    assert plainly_fits(value, load_schema(name)) == (valid and part[key] != 2.0)  # jsonschema's 2.0 is an integer


def test_a_word_of_schemas_that_is_not_known_is_left_to_jsonschema():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}}}
    assert not plainly_fits({"a": 2}, schema)
    assert described("a: 2", schema) is None
    assert described("b: 1\na: 4", schema) == (2, 4, "a must be a whole number, not 4")


def test_the_first_wrong_place_is_told_and_a_lacking_key_last():
    schema = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": {"a": {}, "b": {"type": "number"}},
    }
    assert described("b: x\nc: 1", schema) == (1, 4, "b must be a number, not x")
    assert described("b: 1\nc: 1", schema) == (2, 1, "unknown key c; known are a, b")
    assert described("b: 1", schema) == (1, 1, "it needs a")
    assert described("a: 1", schema) is None


def test_of_branches_the_one_that_the_value_is_meant_for_is_told():
    schema = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"n": {"type": "integer", "minimum": 2}}}]}
    assert described("n: 1", schema) == (1, 4, "n must be a whole number of 2 or more, not 1")
    assert described("[1]", schema) == (1, 1, "it must be text or a mapping, not a list")


def test_long_values_are_cut_and_many_words_are_not_listed():
    assert described("a: " + "x" * 100, {"properties": {"a": {"type": "integer"}}})[2].endswith("x" * 57 + "...")
    assert did_you_mean("zebra", [f"word{i}" for i in range(31)]) == ""
    assert did_you_mean("zebra", ["cat", "dog"]) == "; known are cat, dog"
