from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from gpulint.rules.load import bundled, find_rule, load_rules, read_rule_file, select
from gpulint.rules.rule import RuleError

OWN = """\
id: TEAM001
name: too-long-for-us
since: "1.0"
status: stable
severity: error
confidence: high
when: sequence_length > 4096
at: [sequence_length]
message: "{sequence_length} is more than our 4,096"
why: Our policy.
examples: []
"""


def settings(**values):
    words = dict.fromkeys(("select", "extend_select", "severity", "safe_fixes", "unsafe_fixes", "ignore", "rules"), ())
    return SimpleNamespace(**{**words, "preview": False, **values})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rule.yaml").write_text(OWN)
    return tmp_path


def refused(tmp_path, text):
    path = tmp_path / "rule.yaml"
    path.write_text(text)
    with pytest.raises(RuleError) as caught:
        read_rule_file(str(path))
    return caught.value


def test_stable_rules_run_by_default_and_preview_rules_when_asked_for():
    everything, recipes = bundled()
    preview = [rule for rule in everything if rule.status == "preview"]
    assert preview
    assert all(rule.status == "stable" for rule in load_rules().rules)
    assert preview[0] in select(everything, recipes, (preview[0].id,)).rules
    assert preview[0] in select(everything, recipes, preview=True).rules
    assert preview[0] not in select(everything, recipes, (preview[0].id[:4],)).rules


def test_a_selection_is_an_id_a_name_or_a_beginning():
    everything, recipes = bundled()
    assert {rule.id for rule in select(everything, recipes, ("GPU003",)).rules} == {"GPU003"}
    assert {rule.id for rule in select(everything, recipes, ("duplicate-key",)).rules} == {"GPU003"}
    assert all(rule.id.startswith("GPU1") for rule in select(everything, recipes, ("GPU1",)).rules)


def test_a_selection_of_nothing_is_refused_with_the_nearest_name():
    everything, recipes = bundled()
    with pytest.raises(RuleError, match="did you mean duplicate-key"):
        select(everything, recipes, ("duplicate-keys",))


def test_an_ignored_rule_of_a_group_still_takes_the_groups_place():
    everything, recipes = bundled()
    selection = select(everything, recipes, (), ("GPU101", "GPU003"))
    assert "GPU101" in {rule.id for rule in selection.rules}
    assert "GPU101" in selection.muted
    assert "GPU003" not in {rule.id for rule in selection.rules}


def test_own_rules_stand_beside_the_bundled_ones(folder):
    rules = load_rules(settings(rules=(str(folder),))).rules
    assert find_rule("too-long-for-us", rules).id == "TEAM001"
    assert find_rule("gpu101", rules).name == "optimizer-states-exceed-gpu"


@pytest.mark.parametrize(
    ("old", "new", "reason", "line"),
    [
        ("sequence_length > 4096", "sequence_lenght > 4096", "did you mean sequence_length?", 7),
        ("sequence_length > 4096", "estimate.peak > 80", "80 * GiB", 7),
        ("sequence_length > 4096", "sequence_length >", "not an expression", 7),
        ("{sequence_length} is", "{sequence} is", "unknown fact sequence", 9),
        ("{sequence_length} is", "{sequence_length is", "without its }", 9),
        ("at: [sequence_length]", "at: [sequence]", "not a location", 8),
        ("message:", "mesage:", "unknown key mesage; did you mean message?", 9),
        ("severity: error", "severity: fatal", "severity must be one of error, warning, info, not fatal", 5),
        ("why: Our policy.\n", "", "a rule needs why", 1),
        ("id: TEAM001", "id: team1", "id must be text like TEAM001, not team1", 1),
        ("at: [sequence_length]", "at: sequence_length", "at must be a list, not sequence_length", 8),
        ("status: stable", "status: stabel", "did you mean stable?", 4),
        ("at: [sequence_length]", "at: [3]", "each item of at must be text or a mapping of text, not 3", 8),
        ("examples: []", "examples: [{expect: [TEAM001]}]", "each item of examples needs config", 11),
        ("examples: []", "examples: [{config: a, expect: [], gpus: 2.0}]", "gpus must be a whole number, not 2.0", 11),
        ("examples: []", "examples: [a]", "each item of examples must be a mapping, not a", 11),
        ("examples: []", "examples: []\ngroup: " + 81 * "x", "group must be text of at most 80 characters", 12),
        ("examples: []", "examples: []\n1: 2", "unknown key 1", 12),
        ("why: Our policy.", "why: {Our: policy}", "text that holds `: ` is quoted", 10),
        ("why: Our", "severity: info\nwhy: Our", "duplicate key severity", 5),
        ("examples: []", "examples: []\nsuggest: [{set: {packing_: true}}]", "set needs a Job field", 12),
    ],
)  # fmt: skip
def test_a_wrong_rule_file_is_refused_at_its_line(tmp_path, old, new, reason, line):
    error = refused(tmp_path, OWN.replace(old, new, 1))
    assert reason in error.reason
    assert error.line == line
    assert str(error).startswith(f"{tmp_path / 'rule.yaml'}:{line}:")


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    assert refused(tmp_path, "id: [").line > 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("TEAM001", "GPU999", "reserved for gpulint"),
        ("too-long-for-us", "duplicate-key", "already defined in"),
        ("examples: []", "examples: []\nsuggest: [smaler-batch]", "unknown recipe smaler-batch"),
    ],
)
def test_own_rules_may_not_take_the_place_of_bundled_ones(folder, old, new, reason):
    (folder / "rule.yaml").write_text(OWN.replace(old, new))
    with pytest.raises(RuleError, match=reason):
        load_rules(settings(rules=(str(folder),)))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RuleError, match="no such directory"):
        load_rules(settings(rules=(str(tmp_path / "none"),)))


def test_the_schema_of_rule_files_is_a_schema():
    import jsonschema

    from gpulint.source.schema import load_schema

    jsonschema.Draft202012Validator.check_schema(load_schema("rule"))


def test_bundled_rule_files_agree_with_their_schema():
    import jsonschema

    from gpulint.rules.index import rule_files
    from gpulint.source.schema import load_schema

    validator = jsonschema.Draft202012Validator(load_schema("rule"))
    for file in rule_files():
        assert not list(validator.iter_errors(json.loads(json.dumps(file.source)))), file.id
