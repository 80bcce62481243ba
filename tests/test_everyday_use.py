"""Everyday use: one field changed, two configs compared, standard input, statistics, quiet and loud output."""

from __future__ import annotations

import json
import subprocess

import pytest
from click.testing import CliRunner

from gpulint.cli import main

CONFIG = """base_model: NousResearch/Llama-3.2-1B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 1
bf16: true
optimizer: adamw_torch_fused
gradient_checkpointing: true
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "b.yaml").write_text(CONFIG.replace("micro_batch_size: 1", "micro_batch_size: 4"))
    return tmp_path


def run(*words: str, text: str | None = None):
    return CliRunner().invoke(main, words, catch_exceptions=False, input=text)


def process_bytes(*words: str) -> int:
    done = run("estimate", "a.yaml", "--format", "json", *words)
    return json.loads(done.stdout)["estimates"][0]["per_gpu"]["process"]


def test_a_field_can_be_set(folder):
    assert process_bytes("--set", "micro_batch_size=4") > process_bytes()
    assert process_bytes("--set", "adapter.r=64", "--set", "loss.kernel=liger") != process_bytes()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("micro_batch_sise=4", "did you mean micro_batch_size?"),
        ("stage=3", "did you mean parallelism.zero.stage?"),
        ("micro_batch_size=two", "is of the type whole number, not 'two'"),
        ("micro_batch_size", "takes FIELD=VALUE"),
    ],
)
def test_a_field_that_cannot_be_set(word, message):
    done = run("estimate", "a.yaml", "--set", word)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_compare_says_what_makes_the_difference():
    found = json.loads(run("compare", "a.yaml", "b.yaml", "--format", "json").stdout)
    change = found["differences"][0]
    assert (change["field"], change["before"], change["after"]) == ("micro_batch_size", 1, 4)
    process = [found[side]["per_gpu"]["process"] for side in ("before", "after")]
    assert 0.9 * (process[1] - process[0]) < change["alone"] <= process[1] - process[0]  # evaluation takes the rest
    assert "micro_batch_size  1       4" in run("compare", "a.yaml", "b.yaml").stdout


def test_compare_with_itself_finds_nothing():
    assert "no setting that affects memory differs" in run("compare", "a.yaml", "a.yaml").stdout


def test_compare_reads_a_revision(folder):
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "1"]):
        subprocess.run(["git", *words], check=True)
    (folder / "a.yaml").write_text(CONFIG.replace("sequence_len: 1024", "sequence_len: 4096"))
    found = json.loads(run("compare", "HEAD:a.yaml", "a.yaml", "--format", "json").stdout)
    assert [change["field"] for change in found["differences"]] == ["sequence_length"]
    done = run("compare", "nowhere:a.yaml", "a.yaml")
    assert (done.exit_code, done.stderr) == (2, "gpulint: nowhere:a.yaml: nowhere: unknown\n")


def test_standard_input_has_a_name_and_its_folder(folder):
    (folder / "gpulint.toml").write_text('ignore = ["GPU003"]\n')
    twice = CONFIG + "micro_batch_size: 2\n"
    assert run("check", "-", "--stdin-filename", "c.yaml", text=twice).stdout.startswith("No findings")
    done = run("check", "-", "--stdin-filename", "c.json", text="{")
    assert done.exit_code == 2
    assert done.stderr.startswith("gpulint: c.json:1:")
    assert run("check", "-", "--fix", text=twice).exit_code == 2


def test_statistics(folder):
    (folder / "a.yaml").write_text(CONFIG + "micro_batch_sise: 2\nmicro_batch_size: 1\nlora_rr: 1\n")
    lines = run("check", "a.yaml", "--statistics").stdout.splitlines()
    assert lines[1].split() == ["2", "warning", "GPU001", "unknown-key-ignored", "1"]
    rows = json.loads(run("check", "a.yaml", "--statistics", "--output-format", "json").stdout)
    assert (rows[0]["findings"], rows[0]["rule"], rows[0]["files"]) == (2, "GPU001", 1)


@pytest.mark.parametrize("shown", [(), ("--output-format", "concise")])
def test_statistics_replace_what_is_shown_and_no_file(folder, shown):
    (folder / "a.yaml").write_text(CONFIG + "micro_batch_sise: 2\n")
    done = run("check", "a.yaml", "--statistics", *shown, "--output-format", "json", "--output-file", "found.json")
    assert done.stdout.splitlines()[1].split()[2] == "GPU001"
    assert json.loads((folder / "found.json").read_text())["findings"][0]["rule"] == "GPU001"


def test_quiet_prints_findings_alone_and_verbose_what_was_skipped(folder):
    (folder / "other.yaml").write_text("a: 1\n")
    assert run("check", ".", "-q").stdout == ""
    assert "other.yaml: skipped: unknown format" in run("check", ".", "-v").stderr


def test_where_nothing_is_checked_the_first_reasons_are_told(folder):
    (folder / "empty").mkdir()
    for number in range(7):
        (folder / "empty" / f"{number}.yaml").write_text("a: 1\n")
    told = run("check", "empty").stderr.splitlines()
    assert told[0].endswith("0.yaml: skipped: unknown format")
    assert told[-1] == "gpulint: 2 more skipped; -v lists them"
    assert len(told) == 6
    assert run("check", "empty", "-q").stderr == ""


def test_several_processes_find_the_same(folder):
    (folder / "c.yaml").write_text(CONFIG + "micro_batch_size: 2  # gpulint: ignore[unknown-key-ignored] x\n")
    assert run("check", ".", "--jobs", "2").stdout == run("check", ".", "--jobs", "1").stdout


def test_colour_is_chosen():
    assert "\x1b[" in run("--color", "always", "check", "a.yaml").stdout
    assert "\x1b[" not in run("--color", "never", "check", "a.yaml").stdout


def test_a_misspelt_command_is_told_the_nearest():
    done = run("chek", "a.yaml")
    assert done.exit_code == 2
    assert "did you mean check?" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    assert "_GPULINT_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize("words", [("estimate", "a.yaml"), ("plan", "a.yaml"), ("compare", "a.yaml", "b.yaml")])
def test_settings_that_cannot_be_followed_are_told_in_one_line(folder, words):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "gpulint.toml").write_text("gpuz = 1\n")
    for name in ("a.yaml", "b.yaml"):
        (inner / name).write_text(CONFIG)
    done = run(words[0], *(f"inner/{word}" for word in words[1:]))
    assert done.exit_code == 2
    assert done.stderr.startswith("gpulint: inner/gpulint.toml:1:1: unknown key gpuz; did you mean gpu?")
    assert "internal error" not in done.stderr


@pytest.mark.parametrize("command", ["estimate", "compare"])
def test_an_adapter_that_does_not_fit_the_model_is_told_in_one_line(folder, command):
    (folder / "a.yaml").write_text(CONFIG.replace("lora_target_linear: true", "lora_target_modules: [nowhere]"))
    done = run(command, "a.yaml", *(["b.yaml"] if command == "compare" else []))
    assert done.exit_code == 2
    assert done.stderr.startswith("gpulint: a.yaml: ")
    assert done.stderr.count("\n") == 1
    assert "internal error" not in done.stderr


def test_one_job_of_a_launcher_does_not_hide_the_others(folder):
    (folder / "run.sh").write_text("vllm serve nobody/knows-this\nvllm serve NousResearch/Llama-3.2-1B\n")
    done = run("estimate", "run.sh")
    assert done.exit_code == 2
    assert "NousResearch/Llama-3.2-1B" in done.stdout
    assert "nobody/knows-this is unknown" in done.stderr


def test_a_walk_takes_batch_scripts_of_any_suffix_and_dockerfiles(folder):
    job = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks=2\nsrun torchrun --nproc_per_node 4 train.py --lr 1e-4\n"
    names = ("a.job", "b.pbs", "c.sub", "d.sl", "e.lsf")
    for name in names:
        (folder / name).write_text(job)
    (folder / "condor.sub").write_text("executable = train.sh\nqueue\n")
    (folder / "notes.pbs").write_text(job.partition("\n")[2])
    (folder / "Dockerfile.train").write_text(
        "FROM nvidia/cuda:12.8.1-runtime-ubuntu22.04\nRUN pip install flash-attn\n"
    )
    report = json.loads(CliRunner().invoke(main, ["check", ".", "--output-format", "json"]).stdout)
    assert {item["path"] for item in report["files"]} == {*names, "Dockerfile.train", "a.yaml", "b.yaml"}
    found = {(item["path"], item["rule"]) for item in report["findings"]}
    assert {(name, "GPU763") for name in names} <= found
