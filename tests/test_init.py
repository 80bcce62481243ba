"""`gpulint init`: what it writes works, and what is there stays."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.cli import main
from gpulint.commands import init
from gpulint.commands.console import Refused


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, ["init", *arguments], catch_exceptions=False)


def test_an_empty_repository_gets_settings_and_a_hook(repository):
    result = run()
    assert result.exit_code == 0
    assert result.output == (
        "wrote gpulint.toml: set your GPU there; without one memory is not checked\n"
        "wrote .pre-commit-config.yaml: run `pre-commit install` once\n"
    )
    assert sorted(path.name for path in repository.iterdir()) == [".git", ".pre-commit-config.yaml", "gpulint.toml"]
    hooks = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    assert hooks["repos"][0]["hooks"] == [{"id": "gpulint"}]


def test_the_settings_count(repository):
    run("--gpu", "NVIDIA-H100-80GB-HBM3", "--gpus", "8")
    shown = CliRunner().invoke(main, ["config", "show", ".", "--format", "json"])
    settings = json.loads(shown.output)["settings"]
    assert settings["gpu"]["value"] == "h100-80gb"
    assert settings["gpus"]["value"] == 8


def test_settings_without_a_gpu_are_read(repository):
    run()
    shown = CliRunner().invoke(main, ["config", "show", "."])
    assert shown.exit_code == 0, shown.output
    assert "settings file: gpulint.toml" in shown.output


def test_the_second_time_nothing_changes(repository):
    run("--ci", "github")
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    result = run("--ci", "github")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == ["kept"] * 3
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_a_gpu_for_settings_that_are_there_is_refused(repository):
    (repository / "pyproject.toml").write_text("[tool.gpulint]\ngpus = 4\n")
    result = run("--gpu", "t4")
    assert result.exit_code == 2
    assert "pyproject.toml: not written: it already has settings" in result.output
    assert (repository / ".pre-commit-config.yaml").exists()
    assert (repository / "pyproject.toml").read_text() == "[tool.gpulint]\ngpus = 4\n"


def test_an_unknown_gpu_writes_nothing(repository):
    result = run("--gpu", "h1000")
    assert result.exit_code == 2
    assert [path.name for path in repository.iterdir()] == [".git"]


def test_in_a_folder_below_the_hook_goes_to_the_root(repository, monkeypatch):
    (repository / "configs").mkdir()
    monkeypatch.chdir(repository / "configs")
    assert "wrote ../.pre-commit-config.yaml" in run().output.replace("\\", "/")
    assert (repository / "configs" / "gpulint.toml").exists()
    assert (repository / ".pre-commit-config.yaml").exists()


HOOKS = (
    "repos: []\n",
    "# what we run\ndefault_stages: [pre-commit]\n",
    "repos:\n- repo: local  # ours\n  hooks:\n  - {id: x, name: 'x', entry: \"y\", language: system}\n\n# the end\n",
    "repos:\n    -   repo: https://x.org/a\n        rev: 'v1.0'\n        hooks:\n        -   id: z\nci: {skip: [z]}\n",
    "repos:\r\n  - repo: https://example.org/a # a\r\n    rev: v1\r\n    hooks:\r\n      - id: z\r\n",
)


@pytest.mark.parametrize("text", HOOKS)
def test_a_hook_is_added_and_nothing_else_changes(repository, text):
    path = repository / ".pre-commit-config.yaml"
    path.write_bytes(text.encode())
    result = run()
    assert result.exit_code == 0
    assert "extended .pre-commit-config.yaml" in result.output
    after = path.read_bytes().decode()
    assert [line for line in text.splitlines(True) if line != "repos: []\n" and line not in after] == []
    old, new = yaml.safe_load(text), yaml.safe_load(after)
    assert new.pop("repos")[:-1] == (old.pop("repos", None) or [])
    assert new == old


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_hook_goes_into_any_configuration_with_its_comments_and_indentation(data):
    sequence, inner = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 3))
    text = "".join(_hook_lines(data.draw, sequence, inner))
    break_ = data.draw(st.sampled_from(["\n", "\r\n"]))
    text = text.replace("\n", break_)
    after = init.with_hook(text)
    ours = yaml.safe_load(init.with_hook(None))["repos"]
    old = yaml.safe_load(text)
    assert yaml.safe_load(after) == {**old, "repos": [*old["repos"], *ours]}
    new = iter(after.splitlines(True))
    assert all(line in new for line in text.splitlines(True))
    assert after.count(break_) == after.count("\n")
    assert f"{' ' * sequence}- repo: https://github.com/gpulint/gpulint{break_}" in after


def _hook_lines(draw, sequence, inner):
    """A pre-commit configuration of some repositories, with comments wherever one may stand."""
    comment = st.sampled_from(["", "  # why", " #"])
    own = st.sampled_from(["", "", "# a line\n", "\n", "    # further in\n"])
    margin = " " * sequence
    yield draw(own)
    yield f"repos:{draw(comment)}\n"
    for number in range(draw(st.integers(1, 3))):
        yield draw(own)
        yield f"{margin}-{' ' * inner}repo: https://example.org/{number}{draw(comment)}\n"
        inside = margin + " " * (1 + inner)
        yield f"{inside}rev: {draw(st.sampled_from(['v1', chr(39) + '1.0' + chr(39), chr(34) + 'x' + chr(34)]))}\n"
        yield draw(own)
        yield f"{inside}hooks: {draw(st.sampled_from(['[{id: a}]', '[ {id: a, args: [--x]} ]']))}{draw(comment)}\n"
    yield draw(own)
    yield draw(st.sampled_from(["", "ci: {skip: [a]}\n", "# the end\n", "fail_fast: yes\n"]))


@pytest.mark.parametrize("text", ["repos: [\n", "- a\n", "repos: {a: b}\n"])
def test_what_cannot_be_extended_is_left_alone(repository, text):
    path = repository / ".pre-commit-config.yaml"
    path.write_text(text)
    result = run()
    assert result.exit_code == 2
    assert ".pre-commit-config.yaml: not written: " in result.output
    assert path.read_text() == text
    assert (repository / "gpulint.toml").exists()


def test_a_link_is_not_followed(repository, tmp_path_factory):
    target = tmp_path_factory.mktemp("other") / "hooks.yaml"
    target.write_text("repos: []\n")
    (repository / ".pre-commit-config.yaml").symlink_to(target)
    assert run().exit_code == 2
    assert target.read_text() == "repos: []\n"


def test_gitlab_gets_one_more_job(repository):
    path = repository / ".gitlab-ci.yml"
    text = "stages: [lint, build]  # two\n\nbuild:\n  stage: build\n  script: [make]\n"
    path.write_text(text)
    assert "extended .gitlab-ci.yml" in run("--ci", "gitlab").output
    after = path.read_text()
    assert after.startswith(text)
    assert yaml.safe_load(after)["gpulint"]["stage"] == "lint"


def test_gitlab_files_with_tags_are_extended_or_left(repository):
    path = repository / ".gitlab-ci.yml"
    text = ".a:\n  script: [x]\nb:\n  script:\n    - !reference [.a, script]\n"
    path.write_text(text)
    result = run("--ci", "gitlab")
    assert path.read_text().startswith(text)
    assert result.exit_code == (0 if "gpulint:" in path.read_text() else 2)


def test_the_template_for_gitlab_is_the_same_job(root):
    template = yaml.safe_load((root / "ci" / "gitlab.yml").read_text(encoding="utf-8"))
    assert template == yaml.safe_load(init.with_job(None)) == {"gpulint": init.job()}


def test_the_workflow_names_actions_by_commit_or_release(repository):
    run("--ci", "github")
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "gpulint.yml").read_text())
    uses = [step["uses"] for step in workflow["jobs"]["gpulint"]["steps"]]
    assert [use.partition("@")[0] for use in uses] == ["actions/checkout", "gpulint/gpulint"]
    assert len(uses[0].partition("@")[2]) == 40


def test_hooks_of_other_shapes_are_refused():
    with pytest.raises(Refused):
        init.with_hook("just text\n")
