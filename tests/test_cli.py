"""The command line as a stranger meets it: exit codes, one line for each bad input, the other files still checked."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from gpulint.cli import main

GOOD = """base_model: NousResearch/Meta-Llama-3-8B
adapter: qlora
load_in_4bit: true
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 1024
micro_batch_size: 1
gradient_checkpointing: true
bf16: auto
optimizer: adamw_bnb_8bit
learning_rate: 0.0002
output_dir: out
"""
BAD = "".join(
    line
    for line in GOOD.replace("bf16: auto", "bf16: false").replace("adamw_bnb_8bit", "adamw_torch").splitlines(True)
    if not line.startswith(("adapter", "load_in", "lora"))
)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    return tmp_path


def gpulint(*arguments: str):
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def test_a_good_config_is_clean():
    result = gpulint("check", "good.yaml", "--gpu", "h100-80gb", "--gpus", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("No findings in 1 file checked")


def test_findings_exit_with_one():
    result = gpulint("check", "bad.yaml", "--gpu", "h100-80gb", "--gpus", "1")
    assert result.exit_code == 1
    assert "error GPU101 optimizer-states-exceed-gpu" in result.stdout


def test_fail_on_decides_the_exit_code():
    assert gpulint("check", "bad.yaml", "--gpu", "h100-80gb", "--fail-on", "never").exit_code == 0


def bad_inputs(folder):
    (folder / "tab.yaml").write_text("a:\n\t- b\n")
    (folder / "latin.yaml").write_bytes(b"base_model: caf\xe9\n")
    (folder / "nest.yaml").write_text("[" * 60_000)
    (folder / "nest.json").write_text("[" * 60_000)
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    (folder / "bomb.yaml").write_text(bomb)
    (folder / "unknown.yaml").write_text("hello: world\n")
    (folder / "notes.txt").write_text("hello")
    (folder / "gpu.yaml").write_text("# gpulint: gpu=h1000\n" + GOOD)
    os.mkfifo(folder / "pipe.yaml")
    return {
        "tab.yaml": "tab.yaml:2:",
        "latin.yaml": "UTF-8",
        "nest.yaml": "nest.yaml:1:",
        "nest.json": "nest.json:1:",
        "bomb.yaml": "bomb.yaml",
        "unknown.yaml": "unknown config format",
        "notes.txt": "notes.txt",
        "missing.yaml": "missing.yaml",
        "pipe.yaml": "pipe.yaml",
        "gpu.yaml": "gpu.yaml:1:",
    }


def test_every_bad_input_is_one_line_and_stops_nothing(in_a_folder):
    expected = bad_inputs(in_a_folder)
    result = gpulint("check", *expected, "bad.yaml", "--gpus", "1")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == len(expected), result.stderr
    for line, (name, part) in zip(lines, expected.items(), strict=True):
        assert line.startswith("gpulint: ")
        assert name in line
        assert part in line
        assert "Traceback" not in line
    assert "1 file checked" in result.stdout


@pytest.mark.parametrize("name", ["unknown.yaml", "tab.yaml", "nest.yaml", "latin.yaml", "missing.yaml", "pipe.yaml"])
def test_estimate_refuses_the_same_inputs(in_a_folder, name):
    bad_inputs(in_a_folder)
    result = gpulint("estimate", name, "good.yaml", "--format", "json")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert [item["file"] for item in json.loads(result.stdout)["estimates"]] == ["good.yaml"]


def test_a_walked_folder_skips_what_it_does_not_know(in_a_folder):
    (in_a_folder / "other.yaml").write_text("hello: world\n")
    (in_a_folder / "chart.yaml").write_text("a: {{ .Values.x }}\n")
    result = gpulint("check", ".", "--gpu", "h200-141gb", "--gpus", "8", "--fail-on", "never")
    assert result.exit_code == 0, result.output
    assert "2 files checked, 2 skipped" in result.stdout


def test_named_files_of_no_format_can_be_skipped(in_a_folder):
    (in_a_folder / "other.yaml").write_text("hello: world\n")
    assert gpulint("check", "other.yaml", "--skip-unknown").exit_code == 0


@pytest.mark.parametrize("command", ["check", "estimate"])
def test_an_unknown_gpu_is_refused_with_its_neighbours(command):
    result = gpulint(command, "good.yaml", "--gpu", "h10")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "h10" in result.stderr


def test_an_empty_folder_is_refused(in_a_folder):
    (in_a_folder / "empty").mkdir()
    assert gpulint("check", "empty").exit_code == 2


def test_a_rule_file_with_a_typo_is_refused_with_its_line(in_a_folder):
    (in_a_folder / "mine").mkdir()
    (in_a_folder / "mine" / "MY001.yaml").write_text("id: MY001\nnamee: my-rule\n")
    result = gpulint("check", "good.yaml", "--rules", "mine")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "MY001.yaml:2" in result.stderr


def test_json_goes_to_stdout_alone(in_a_folder):
    result = gpulint("check", "good.yaml", "bad.yaml", "missing.yaml", "--gpu", "h100", "--output-format", "json")
    report = json.loads(result.stdout)
    assert report["schema"] == "gpulint-report/1"
    assert [file["status"] for file in report["files"]] == ["checked", "checked", "error"]
    assert report["summary"]["files"] == 3
    assert any(finding["path"] == "bad.yaml" for finding in report["findings"])


def test_estimate_json_has_the_contract():
    result = gpulint("estimate", "good.yaml", "--gpu", "h100-80gb", "--format", "json")
    (item,) = json.loads(result.stdout)["estimates"]
    assert item["model"]["parameters"] == 8_030_261_248
    assert item["model"]["trainable_parameters"] == 41_943_040
    components = dict(item["components"])
    runtime = components.pop("runtime")
    tiers = item["per_gpu"]
    assert sum(components.values()) == tiers["allocated"] == item["phases"][item["peak_phase"]]
    assert tiers["allocated"] <= tiers["reserved"] <= tiers["process"]
    assert tiers["low"] <= tiers["process"] <= tiers["high"]
    assert runtime > 0
    assert item["verdict"] == "fits"
    assert item["capacity"]["gpu"] == "h100-80gb"


def test_explained_terms_sum_to_the_components():
    result = gpulint("estimate", "good.yaml", "--gpu", "h100-80gb", "--format", "json", "--explain")
    (item,) = json.loads(result.stdout)["estimates"]
    for name, size in item["components"].items():
        assert sum(term["bytes"] for term in item["terms"] if term["component"] == name) == size


def test_without_a_gpu_the_estimate_says_what_fits():
    result = gpulint("estimate", "good.yaml")
    assert result.exit_code == 0
    assert "fits on" in result.stdout
    assert "memory not checked: no GPU is named (--gpu, " in result.stdout


def test_a_comment_names_the_hardware(in_a_folder):
    (in_a_folder / "bad.yaml").write_text("# gpulint: gpu=h100-80gb gpus=1\n" + BAD)
    assert gpulint("check", "bad.yaml").exit_code == 1
    assert gpulint("check", "bad.yaml", "--gpu", "b300").exit_code == 0


def test_settings_lose_to_a_comment_and_to_the_command_line(in_a_folder):
    (in_a_folder / "gpulint.toml").write_text('gpu = "t4"\n')
    (in_a_folder / "good.yaml").write_text("# gpulint: gpu=h100-80gb\n" + GOOD)
    result = gpulint("estimate", "good.yaml", "--format", "json")
    assert json.loads(result.stdout)["estimates"][0]["capacity"]["gpu"] == "h100-80gb"
    result = gpulint("estimate", "bad.yaml", "--format", "json")
    assert json.loads(result.stdout)["estimates"][0]["capacity"]["gpu"] == "t4"


def test_an_ignored_finding_is_counted(in_a_folder):
    (in_a_folder / "bad.yaml").write_text("# gpulint: ignore-file[GPU101]\n" + BAD)
    result = gpulint("check", "bad.yaml", "--gpu", "h100-80gb", "--gpus", "1")
    assert "1 suppressed" in result.stdout


@pytest.mark.parametrize("command", ["rules", "gpus", "models"])
def test_listings_have_json(command):
    result = gpulint(command, *(["llama-3-8b"] if command == "models" else []), "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"] == f"gpulint-{command}/1"


def test_explain_knows_ids_and_names_and_refuses_others():
    assert gpulint("explain", "GPU101").stdout == gpulint("explain", "optimizer-states-exceed-gpu").stdout
    assert gpulint("explain", "optimizer-states-exceed-gp").exit_code == 2


@pytest.mark.parametrize("command", ["check", "estimate", "explain", "rules", "gpus", "models"])
def test_help_is_there(command):
    assert gpulint(command, "--help").exit_code == 0


def test_the_examples_are_read(root):
    examples = str(root / "examples")
    result = gpulint("check", examples, "--output-format", "json", "--fail-on", "never")
    assert all(file["status"] == "checked" for file in json.loads(result.stdout)["files"])


def test_a_version_of_the_command_line_decides_defaults(tmp_path):
    config = tmp_path / "sft.yaml"
    config.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: a/b\nlearning_rate: 2e-4\n")
    told = CliRunner().invoke(main, ["estimate", str(config), "--set-version", "trl=0.21.0"])
    assert "none  (default of trl 0.21.0)" in told.output
    bad = CliRunner().invoke(main, ["estimate", str(config), "--set-version", "trl"])
    assert (bad.exit_code, "NAME=VERSION" in bad.output) == (2, True)


def test_several_outputs_at_once(in_a_folder):
    result = gpulint(
        "check", "bad.yaml", "--gpu", "t4", "--output-format", "concise", "--output-format", "sarif",
        "--output-format", "junit", "--output-file", "a.sarif", "--output-file", "b.xml",
    )  # fmt: skip
    assert result.exit_code == 1
    assert result.stdout.startswith("bad.yaml:")
    assert json.loads((in_a_folder / "a.sarif").read_text())["version"] == "2.1.0"
    assert (in_a_folder / "b.xml").read_text().startswith("<?xml")


def test_a_file_takes_the_format_named_before_it(in_a_folder):
    result = gpulint(
        "check", "bad.yaml", "--gpu", "t4", "--output-format", "sarif", "--output-file", "a.sarif",
        "--output-format", "concise",
    )  # fmt: skip
    assert result.stdout.startswith("bad.yaml:")
    assert json.loads((in_a_folder / "a.sarif").read_text())["version"] == "2.1.0"


def test_a_file_named_before_the_format_takes_it_too(in_a_folder):
    gpulint("check", "bad.yaml", "--gpu", "t4", "--output-file", "a.json", "--output-format", "json")
    assert json.loads((in_a_folder / "a.json").read_text())["findings"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--output-format", "json", "--output-format", "sarif"),
        ("--output-format", "json", "--output-file", "a", "--output-file", "b"),
        ("--output-format", "sarif", "--output-file", "no/such/folder.sarif"),
    ],
)
def test_outputs_that_cannot_be_are_refused(arguments):
    result = gpulint("check", "good.yaml", *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_plan_prints_the_table_and_why_recipes_are_not_in_it():
    done = gpulint("plan", "bad.yaml", "--gpu", "rtx-4090", "--isolated")
    assert done.exit_code == 0
    assert "does not fit 1 x RTX 4090" in done.stdout
    assert "adapter: qlora" in done.stdout
    assert "Not applicable" in done.stdout


def test_plan_as_json_is_sorted_and_has_edits():
    done = gpulint("plan", "bad.yaml", "--gpu", "rtx-4090", "--format", "json", "--sort", "memory", "--isolated")
    (plan,) = json.loads(done.stdout)["plans"]
    needs = [row["per_gpu"]["process"] for row in plan["rows"]]
    assert needs == sorted(needs)
    assert any(row["edits"] for row in plan["rows"])


def test_plan_of_a_bad_file_says_so_and_plans_the_others():
    done = gpulint("plan", "nothing.yaml", "good.yaml", "--isolated")
    assert done.exit_code == 2
    assert "nothing.yaml" in done.stderr
    assert "it fits on" in done.stdout


def test_skip_unknown_skips_files_that_are_no_configs_at_all(in_a_folder):
    (in_a_folder / "README.md").write_text("# hi\n")
    (in_a_folder / "chart.yaml").write_text("a: {{ .Values.a }}\n{{- if .b }}\n")
    refused = gpulint("check", "README.md", "good.yaml")
    assert refused.exit_code == 2
    assert "README.md: unknown file type" in refused.output
    passed = gpulint("check", "README.md", "chart.yaml", "good.yaml", "--skip-unknown")
    assert passed.exit_code == 0, passed.output
    assert "No findings in 1 file checked, 2 skipped" in passed.output


def test_options_of_commands_below_commands_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("GPULINT_GPU", "t4")
    shown = gpulint("config", "show", ".")
    assert [line.split() for line in shown.output.splitlines() if line.startswith("gpu ")] == [
        ["gpu", "t4", "GPULINT_GPU"]
    ]


def copies(folder, number):
    for index in range(number):
        (folder / f"run{index}").mkdir()
        (folder / f"run{index}" / "train.yaml").write_text(BAD)


ON_H100 = ("--gpu", "h100-80gb", "--gpus", "1")


def test_a_folder_of_copies_is_told_once(in_a_folder):
    copies(in_a_folder, 5)
    result = gpulint("check", ".", *ON_H100)
    assert result.exit_code == 1
    assert result.stdout.count("error GPU101") == 1
    assert (
        "also in 5 copies of this file: run0/train.yaml, run1/train.yaml, run2/train.yaml and 2 more" in result.stdout
    )
    assert "6 errors, 6 warnings in 2 distinct problems; 7 files checked" in result.stdout
    found = json.loads(gpulint("check", ".", *ON_H100, "--output-format", "json").stdout)
    assert found["summary"]["findings"] == {"error": 6, "warning": 6, "info": 0}


def test_show_all_and_named_files_show_each(in_a_folder):
    copies(in_a_folder, 5)
    for paths in (["."], ["bad.yaml", *(f"run{index}/train.yaml" for index in range(5))]):
        result = gpulint("check", *paths, *ON_H100, *(["--show-all"] if paths == ["."] else []))
        assert result.stdout.count("error GPU101") == 6
        assert "also in" not in result.stdout
        assert "6 errors, 6 warnings in " in result.stdout
        assert "distinct" not in result.stdout


def test_a_folder_fits_a_screen_and_its_file_has_all(in_a_folder):
    for index in range(12):
        (in_a_folder / f"{index}.yaml").write_text(f"{BAD}warmup_steps: 0.{index + 11}\n")
    result = gpulint(
        "check", ".", *ON_H100, "--output-format", "full", "--output-format", "full", "--output-file", "all.txt"
    )
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) < 60
    assert " more findings (" in result.stdout
    whole = (in_a_folder / "all.txt").read_text()
    assert (
        whole.count(" error GPU")
        == json.loads(gpulint("check", ".", *ON_H100, "--output-format", "json").stdout)["summary"]["findings"]["error"]
    )
    assert " more findings (" not in whole


def test_one_statement_about_many_lines_of_a_hook(in_a_folder):
    """pre-commit names its files: more than a few are a folder."""
    copies(in_a_folder, 17)
    result = gpulint("check", *(f"run{index}/train.yaml" for index in range(17)), *ON_H100)
    assert result.stdout.count("error GPU101") == 1
    assert "17 errors, 17 warnings in 2 distinct problems; 17 files checked" in result.stdout


@pytest.mark.parametrize("key", ["sequence_len", "cutoff_len", "--max-length", "sequence_length"])
def test_a_field_answers_to_the_names_that_tools_have_for_it(key):
    from gpulint.commands.changes import changes_of

    assert changes_of((f"{key}=1536",)) == {"sequence_length": 1536}
