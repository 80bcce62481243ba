from __future__ import annotations

import pytest

from benchmarks.rules.files import File, chosen, file_of
from benchmarks.rules.mistake import mistakes
from benchmarks.rules.plant import Field, conditions_of
from gpulint.rules.index import rule_files
from gpulint.rules.load import load_rules
from gpulint.settings.settings import Settings

CONFIG = """\
base_model: Qwen/Qwen2.5-0.5B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 2048
micro_batch_size: 1  # rows
adapter: lora
lora_r: 8
lora_target_linear: true
gradient_checkpointing: true
"""


@pytest.fixture(scope="module")
def selection():
    return load_rules(Settings())


def rule(id_):
    return next(file for file in rule_files() if file.id == id_)


def planted(tmp_path, selection, id_, text=CONFIG, number=0):
    (tmp_path / "config.yaml").write_text(text)
    file = file_of(str(tmp_path), "config.yaml")
    held = rule(id_)
    conditions = conditions_of(held.source["when"])
    mistake = mistakes(held, selection)[number]
    outcome = Field(selection).plant(file, mistake, held.rule, conditions, model=False)
    assert (tmp_path / "config.yaml").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    return outcome


def test_a_mistake_is_the_keys_that_make_the_rule_fire_and_those_that_silence_it(selection):
    mistake = mistakes(rule("GPU314"), selection)[0]
    assert mistake.values == {"activation_offloading": True}
    assert mistake.absent == ("gradient_checkpointing",)
    assert not mistake.by_model


def test_a_mistake_about_the_model_has_it(selection):
    assert mistakes(rule("GPU202"), selection)[0].by_model


def test_a_rule_about_comments_has_no_mistake_of_keys(selection):
    assert mistakes(rule("GPU012"), selection) == []


def test_a_planted_mistake_is_found_where_it_was_written(tmp_path, selection):
    assert planted(tmp_path, selection, "GPU314").outcome == "found"


def test_files_that_a_mistake_names_are_there_while_it_is_checked(tmp_path, selection):
    assert planted(tmp_path, selection, "GPU312").outcome == "found"


def test_a_file_that_has_the_mistake_already_is_told_apart(tmp_path, selection):
    text = CONFIG.replace("gradient_checkpointing: true", "activation_offloading: true")
    assert planted(tmp_path, selection, "GPU314", text).outcome == "there"


def test_what_else_a_file_says_excuses_the_rule(tmp_path, selection):
    outcome = planted(tmp_path, selection, "GPU103")
    assert (outcome.outcome, outcome.why) == ("excused", 'estimate.verdict == "exceeds"')


def test_rules_that_come_along_are_told(tmp_path, selection):
    outcome = planted(tmp_path, selection, "GPU311", CONFIG)
    assert outcome.outcome == "found"
    assert "GPU310" in dict(outcome.company)


def test_files_for_the_same_purpose_come_in_turn_with_others(selection):
    mistake = mistakes(rule("GPU314"), selection)[0]
    like = [File(f"a{number}", "axolotl", "training", mistake.objective, "") for number in range(2)]
    unlike = [File(f"b{number}", "axolotl", "training", ("dpo", "other"), "") for number in range(6)]
    other = [File("c", "vllm", "inference", ("", "vLLM"), "")]
    order = [file.path for file in chosen([*unlike, *like, *other], mistake)]
    assert sorted(order) == sorted(file.path for file in [*unlike, *like])
    assert {"a0", "a1"} <= {*order[:4]}
