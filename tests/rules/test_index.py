from __future__ import annotations

import json
from pathlib import Path

from gpulint.rules.index import index_text, rule_files
from gpulint.rules.load import bundled, rules_folder


def test_the_index_is_what_the_rule_files_say():
    assert (Path(rules_folder()) / "index.json").read_text() == index_text(), "run scripts/build.py"


def test_a_rule_from_the_index_equals_the_rule_from_its_file():
    rules = {rule.id: rule for rule in bundled()[0]}
    for file in rule_files():
        fresh = json.loads(json.dumps(file.rule._replace(file="")))
        assert json.loads(json.dumps(rules[file.id]._replace(file=""))) == fresh


def test_ids_stand_in_the_file_names_and_areas():
    areas = {"0", "1", "2", "3", "4", "5"}
    for file in rule_files():
        assert Path(file.rule.file).stem == file.id
        assert file.id[:3] == "GPU"
        assert file.id[3] in areas


def test_every_rule_says_why_and_has_a_firing_and_a_silent_example():
    for file in rule_files():
        expected = [example["expect"] for example in file.source["examples"]]
        assert len(file.source["why"]) > 20, file.id
        assert [] in expected, file.id
        if file.status == "stable":
            assert any(text.startswith(file.id) for names in expected for text in names), file.id
