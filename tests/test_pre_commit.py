"""The hooks as pre-commit runs them, and the output that docs/ci.md shows of it.

A copy of this checkout with a tag takes the place of the published repository; pre-commit installs it as it would that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpulint import __version__
from gpulint.commands.init import HOME

ROOT = Path(__file__).resolve().parent.parent
CONSOLE = re.compile(r"```console\n\$ (pre-commit [^\n]*)\n(.*?)```", re.DOTALL)
CONFIG = re.compile(r'```yaml title="(configs/train\.yaml)"\n(.*?)```', re.DOTALL)
UNREACHABLE = (
    "Could not find a version",
    "Temporary failure in name resolution",
    "Connection",
    "No matching distribution",
)


@pytest.fixture(scope="module")
def pre_commit():
    """The pre-commit beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("pre-commit")
    found = str(beside) if beside.exists() else shutil.which("pre-commit")
    if found is None or shutil.which("git") is None:
        pytest.skip("git and pre-commit are not both installed")
    return found


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A repository with what git knows of this checkout, tagged as the release."""
    folder = tmp_path_factory.mktemp("published")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    needed = ("linter/", "rules/", "schemas/", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
    for name in listed:
        if name.startswith(needed) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    commit(folder)
    git(folder, "tag", f"v{__version__}")
    return folder


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message=all")


def test_a_hook_fails_and_then_passes(request, pre_commit, published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")
    page = ROOT / "docs" / "ci.md"
    text = page.read_text(encoding="utf-8")
    name, config = CONFIG.findall(text)[0]
    train = folder / name
    train.parent.mkdir()
    train.write_text(config)
    (folder / "configs" / "notes.yaml").write_text("hello: world\n")
    ours = ("GIT_", "GPULINT_", "GITHUB_", "COLUMNS")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(ours)},
        "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("store")), "PRE_COMMIT_COLOR": "never", "NO_COLOR": "1",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{published}.insteadOf", "GIT_CONFIG_VALUE_0": HOME,
    }  # fmt: skip

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    git(folder, "init", "--quiet", "--initial-branch=main")
    init = run(sys.executable, "-m", "gpulint", "init", "--gpu", "rtx-4090", "--gpus", "1")
    assert init.returncode == 0, init.stderr
    hooks = folder / ".pre-commit-config.yaml"
    git(folder, "add", "--all")
    installed = run(pre_commit, "install-hooks")
    if installed.returncode and any(word in installed.stdout + installed.stderr for word in UNREACHABLE):
        pytest.skip("no package index for the hook's environment")
    assert installed.returncode == 0, installed.stdout + installed.stderr

    def shown() -> str:
        done = run(pre_commit, *commands.pop(0).split()[1:])
        codes.append(done.returncode)
        return done.stdout

    commands, codes = [command for command, _ in CONSOLE.findall(text)], []
    failing = shown()
    train.write_text(config + "gradient_checkpointing: true\n")
    git(folder, "add", "--all")
    passing = shown()
    assert codes == [1, 0], failing + passing
    assert "error" in failing
    blocks = iter((failing, passing))
    renewed = CONSOLE.sub(lambda block: f"```console\n$ {block[1]}\n{next(blocks).rstrip()}\n```", text)
    if request.config.getoption("--update-golden"):
        page.write_text(renewed, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == renewed

    hooks.write_text(hooks.read_text().replace("- id: gpulint", "- id: gpulint-fix"))
    train.write_text(config + "gradient_checkpointing: true  # gpulint: ignore[memory-tight] measured\n")
    git(folder, "add", "--all")
    fixing = run(pre_commit, "run", "--all-files")
    assert fixing.returncode == 1
    assert "files were modified by this hook" in fixing.stdout
    assert train.read_text() == config + "gradient_checkpointing: true\n"
    git(folder, "add", "--all")
    assert run(pre_commit, "run", "--all-files").returncode == 0
