"""Silencing findings: comments, settings, baseline, and what is left over of them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gpulint.cli import main

CONFIG = """base_model: NousResearch/Llama-3.2-1B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 1024
micro_batch_size: 1
micro_batch_size: 8
"""
MARK = "# gpulint: ignore[duplicate-key] the sweep rewrites it"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    (tmp_path / ".git").mkdir()
    return tmp_path


def report(*arguments: str) -> dict:
    result = CliRunner().invoke(main, ["check", *arguments, "--output-format", "json"], catch_exceptions=False)
    return json.loads(result.stdout)


def run(*arguments: str):
    return CliRunner().invoke(main, ["check", *arguments], catch_exceptions=False)


def names(found: dict) -> list[str]:
    return [item["name"] for item in found["findings"]]


def test_a_comment_silences_and_is_counted(folder):
    (folder / "x.yaml").write_text(CONFIG.replace("size: 1\n", f"size: 1  {MARK}\n"))
    found = report("x.yaml")
    assert names(found) == []
    assert found["summary"]["suppressed"] == 1


def test_one_that_silences_nothing_is_a_finding_with_its_removal(folder):
    text = CONFIG.replace("micro_batch_size: 1\n", f"{MARK}\n")
    (folder / "x.yaml").write_text(text)
    (finding,) = report("x.yaml")["findings"]
    assert (finding["name"], finding["line"]) == ("unused-suppression", 4)
    (edit,) = finding["suggestions"][0]["edits"]
    assert text[: edit["start"]] + edit["text"] + text[edit["end"] :] == CONFIG.replace("micro_batch_size: 1\n", "")


def test_of_several_rules_only_the_idle_ones_go(folder):
    mark = "# gpulint: ignore[duplicate-key, unknown-key-ignored] why"
    text = CONFIG.replace("size: 1\n", f"size: 1  {mark}\n")
    (folder / "x.yaml").write_text(text)
    (finding,) = report("x.yaml")["findings"]
    (edit,) = finding["suggestions"][0]["edits"]
    assert text[: edit["start"]] + edit["text"] + text[edit["end"] :] == text.replace(", unknown-key-ignored", "")


def test_a_rule_that_needs_a_gpu_is_not_judged_without_one(folder):
    (folder / "x.yaml").write_text("# gpulint: ignore-file[optimizer-states-exceed-gpu] big cards\n" + CONFIG)
    assert names(report("x.yaml")) == ["duplicate-key"]
    assert sorted(names(report("x.yaml", "--gpu", "h100-80gb"))) == ["duplicate-key", "unused-suppression"]


def test_a_rule_that_did_not_run_is_not_judged(folder):
    (folder / "x.yaml").write_text(MARK + "\n" + CONFIG.replace("micro_batch_size: 1\n", ""))
    assert names(report("x.yaml", "--ignore", "duplicate-key")) == []


def test_json_is_silenced_by_the_settings(folder):
    (folder / "zero.json").write_text(
        '{"zero_optimization": {"stage": 3}, "train_batch_size": 8, "train_batch_size": 16}\n'
    )
    assert names(report("zero.json")) == ["duplicate-key"]
    (folder / "gpulint.toml").write_text(
        '[[suppressions]]\nfile = "*.json"\nrules = ["GPU003"]\nreason = "merged by a tool"\n'
    )
    assert names(report("zero.json")) == []


def test_a_suppression_of_the_settings_below_a_key(folder):
    (folder / "x.yaml").write_text(CONFIG)
    (folder / "gpulint.toml").write_text('[[suppressions]]\nfile = "x.yaml"\nkey = "datasets"\nrules = ["GPU003"]\n')
    found = report("x.yaml")
    assert names(found) == ["duplicate-key", "unused-suppression"]
    assert (found["findings"][1]["path"], found["findings"][1]["line"]) == ("gpulint.toml", 4)


def test_reasons_are_asked_for(folder):
    (folder / "gpulint.toml").write_text("require-reasons = true\n")
    (folder / "x.yaml").write_text(CONFIG.replace("size: 1\n", "size: 1  # gpulint: ignore[duplicate-key]\n"))
    assert names(report("x.yaml")) == ["suppression-without-reason"]


def test_per_file_ignores(folder):
    (folder / "gpulint.toml").write_text('[per-file-ignores]\n"x.*" = ["GPU00"]\n')
    (folder / "x.yaml").write_text(CONFIG)
    found = report("x.yaml")
    assert names(found) == []
    assert found["summary"]["suppressed"] == 0


def test_a_baseline_hides_what_was_there_and_names_what_is_gone(folder):
    path = folder / "x.yaml"
    path.write_text(CONFIG)
    assert run("x.yaml", "--write-baseline", "b.json").exit_code == 0
    path.write_text("# moved down\n\n" + CONFIG + "micro_batch_sise: 3\n")
    found = report("x.yaml", "--baseline", "b.json")
    assert names(found) == ["unknown-key-ignored"]
    assert found["summary"]["baselined"] == 1
    path.write_text(CONFIG.replace("micro_batch_size: 1\n", ""))
    assert report("x.yaml", "--baseline", "b.json")["summary"]["gone"] == ["x.yaml: duplicate-key"]
    assert "--write-baseline removes them" in run("x.yaml", "--baseline", "b.json").stdout


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "gpulint-baseline/1"}', '{"findings": [1]}'])
def test_what_is_no_baseline_is_refused(folder, text):
    (folder / "x.yaml").write_text(CONFIG)
    (folder / "b.json").write_text(text)
    result = run("x.yaml", "--baseline", "b.json")
    assert result.exit_code == 2
    assert "b.json: not a baseline" in result.stderr


def test_ignores_are_added_and_hold(folder):
    path = folder / "x.yaml"
    path.write_text(CONFIG.replace("\n", "\r\n"), newline="")
    assert "1 comment written" in run("x.yaml", "--add-ignore", "for now").stdout
    added = path.read_bytes().decode()
    assert "# gpulint: ignore[duplicate-key] for now\r\nmicro_batch_size: 1\r\n" in added
    assert names(report("x.yaml")) == []


def test_json_takes_no_comments(folder):
    text = '{"zero_optimization": {"stage": 3}, "train_batch_size": 8, "train_batch_size": 16}\n'
    (folder / "zero.json").write_text(text)
    result = run("zero.json", "--add-ignore", "x")
    assert result.exit_code == 2
    assert "[[suppressions]]" in result.stderr
    assert (folder / "zero.json").read_text() == text


def test_the_environment_sets_options(folder, monkeypatch):
    (folder / "x.yaml").write_text(CONFIG)
    monkeypatch.setenv("GPULINT_IGNORE", "duplicate-key")
    assert names(report("x.yaml")) == []


def test_config_show_says_where_values_come_from(folder):
    (folder / "gpulint.toml").write_text("gpus = 8\n")
    result = CliRunner().invoke(
        main, ["config", "show", ".", "--gpu", "t4", "--format", "json"], catch_exceptions=False
    )
    settings = json.loads(result.stdout)["settings"]
    assert settings["gpus"] == {"value": 8, "from": "gpulint.toml:1"}
    assert settings["gpu"] == {"value": "t4", "from": "--gpu"}
