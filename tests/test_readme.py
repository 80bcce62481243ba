"""Every `$ gpulint ...` block of the README is the real output of that command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpulint.cli import main

BLOCK = re.compile(r"```console\n\$ gpulint ([^\n]*)\n(.*?)```", re.DOTALL)


def run(arguments: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(root)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return CliRunner().invoke(main, shlex.split(arguments)).output.rstrip("\n") + "\n"


def test_the_outputs_in_the_readme_are_real(request, root, monkeypatch):
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    assert BLOCK.search(text)
    renewed = BLOCK.sub(lambda match: f"```console\n$ gpulint {match[1]}\n{run(match[1], root, monkeypatch)}```", text)
    if request.config.getoption("--update-golden"):
        path.write_text(renewed, encoding="utf-8")
    assert renewed == path.read_text(encoding="utf-8")
