"""What CI servers run, as they would run it: the steps of the Action, GitLab's job, the pre-commit hooks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpulint.commands import init

WORKFLOWS = (".github/workflows/ci.yml", "action.yml")


@pytest.fixture
def checkout(tmp_path, root):
    """A folder with the examples, as a CI server has checked it out."""
    shutil.copytree(root / "examples", tmp_path / "examples")
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def program(tmp_path_factory):
    """A `gpulint` in a virtual environment's place."""
    folder = tmp_path_factory.mktemp("environment") / "gpulint" / "bin"
    folder.mkdir(parents=True)
    script = folder / "gpulint"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpulint "$@"\n')
    script.chmod(0o755)
    return script


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPULINT_", "GITHUB_"))}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env={**kept, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def action(root: Path, checkout: Path, program: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step of `action.yml` that checks, its inputs filled in as the runner does."""
    described = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    (step,) = [item for item in described["runs"]["steps"] if item.get("name") == "Check"]
    values = {name: item.get("default", "") for name, item in described["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for name, text in step["env"].items()
    }
    return shell(
        step["run"], checkout, **variables, RUNNER_TEMP=str(program.parents[2]), GITHUB_ACTIONS="true"
    )  # fmt: skip


def test_the_action_annotates_and_writes_sarif(root, checkout, program):
    done = action(root, checkout, program, paths="examples/llama3-8b-full.yaml", gpu="h100-80gb", gpus="1")
    assert done.returncode == 1, done.stderr
    assert "::error file=examples/llama3-8b-full.yaml,line=17," in done.stdout
    sarif = json.loads((checkout / "gpulint.sarif").read_text())
    assert {item["ruleId"] for item in sarif["runs"][0]["results"]} == {"GPU101", "GPU412"}


def test_the_action_is_silent_about_good_configs(root, checkout, program):
    done = action(root, checkout, program)
    assert done.returncode == 0, done.stderr
    assert "::" not in done.stdout
    assert json.loads((checkout / "gpulint.sarif").read_text())["runs"][0]["results"] == []


def test_inputs_are_words_and_nothing_else(root, checkout, program):
    done = action(root, checkout, program, paths="examples/*.yaml", args="; touch owned $(touch owned)")
    assert done.returncode == 2
    assert not (checkout / "owned").exists()


def test_no_input_is_written_into_a_script(root):
    described = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in described["runs"]["steps"] if "run" in step]
    assert scripts
    assert [text for text in scripts if "${{" in text] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_of_others_are_named_by_commit(root, name):
    uses = re.findall(r"uses: (\S+)", (root / name).read_text(encoding="utf-8"))
    assert uses
    assert [use for use in uses if use != "./" and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", use)] == []
    assert init.CHECKOUT in (root / ".github/workflows/ci.yml").read_text(encoding="utf-8")


def test_the_job_for_gitlab_writes_its_report(checkout, program):
    script = init.job()["script"][-1]
    variables = {**init.job()["variables"], "GPULINT_PATHS": "examples/llama3-8b-full.yaml", "GPULINT_GPU": "h100-80gb"}
    done = shell(script, checkout, **variables, PATH=f"{program.parent}:{os.environ['PATH']}", GITLAB_CI="true")
    assert done.returncode == 1, done.stderr
    assert "error GPU101 optimizer-states-exceed-gpu" in done.stdout
    report = json.loads((checkout / init.job()["artifacts"]["reports"]["codequality"]).read_text())
    assert "examples/llama3-8b-full.yaml" in {item["location"]["path"] for item in report}


def test_hooks_take_what_a_walk_takes(root):
    from gpulint.run.walk import BATCH_SUFFIXES, SUFFIXES

    hooks = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["gpulint", "gpulint-fix"]
    for hook in hooks:
        assert all(re.search(hook["files"], f"configs/a{suffix}") for suffix in (*SUFFIXES, *BATCH_SUFFIXES))
        assert all(
            re.search(hook["files"], name) for name in ("Dockerfile", "images/Dockerfile.train", "Containerfile")
        )
        assert not any(re.search(hook["files"], name) for name in ("train.py", "MyDockerfile", "job"))
        assert hook["require_serial"]
