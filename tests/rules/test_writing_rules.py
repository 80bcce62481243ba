"""The page about writing rules: its rule is a rule, and its outputs are real."""

from __future__ import annotations

import re
import shlex

import yaml
from click.testing import CliRunner

from gpulint.cli import main

BLOCK = re.compile(r"```console\n\$ gpulint ([^\n]*)\n(.*?)```", re.DOTALL)


def test_the_outputs_of_the_page_are_real(request, root, tmp_path, monkeypatch):
    page = root / "docs" / "writing-rules.md"
    text = page.read_text(encoding="utf-8")
    rule = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    for folder, (old, new) in {
        "lint": ("", ""),
        "typo": ("sequence_len: 8192", "sequence_len: 819"),
        "broken": ("micro_batch.tokens >", "micro_batch.token >"),
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "long-samples.yaml").write_text(rule.replace(old, new, 1) if old else rule)
    (tmp_path / "train.yaml").write_text(yaml.safe_load(rule)["examples"][0]["config"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(match):
        output = CliRunner().invoke(main, shlex.split(match[1])).output.rstrip("\n")
        return f"```console\n$ gpulint {match[1]}\n{output}\n```"

    renewed = BLOCK.sub(run, text)
    if request.config.getoption("--update-golden"):
        page.write_text(renewed, encoding="utf-8")
    assert renewed == text or request.config.getoption("--update-golden")
    assert "Traceback" not in renewed
