"""What docs/editors.md and the extension say is what the server does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from gpulint.editor.hover import hover
from gpulint.editor.lens import lenses
from gpulint.editor.workspace import Workspace


def test_the_lens_and_the_help_on_the_page_are_those_of_the_example(root):
    shown = re.findall(r"^```text\n(.*?)\n```$", (root / "docs/editors.md").read_text(), re.MULTILINE | re.DOTALL)
    example = root / "examples" / "llama3-8b-qlora.yaml"
    text = example.read_text()
    workspace = Workspace()
    workspace.put(str(example), text)
    read = workspace.reading(str(example))
    help_ = hover(read, str(example), text, text.index("gradient_checkpointing"))
    assert shown == ["\n".join(lenses(read)), help_.text]


def test_the_settings_of_the_extension_are_those_that_it_reads(root):
    folder = root / "editors" / "vscode"
    package = json.loads((folder / "package.json").read_text())
    declared = set(package["contributes"]["configuration"]["properties"])
    script, page = (folder / "extension.js").read_text(), (folder / "README.md").read_text()
    assert {f"gpulint.{name}" for name in re.findall(r'settings\.get\("(\w+)"', script)} == declared - {
        "gpulint.trace.server"
    }
    assert all(f"`{name}`" in page for name in declared)
    languages = set(re.findall(r'"(\w+)"', re.search(r"LANGUAGES = \[(.*?)\]", script)[1]))
    assert {f"onLanguage:{name}" for name in languages} == set(package["activationEvents"])
    commands = {item["command"] for item in package["contributes"]["commands"]}
    assert commands == set(re.findall(r'registerCommand\("([\w.]+)"', script))


def test_node_reads_the_extension(root):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    subprocess.run(["node", "--check", str(root / "editors" / "vscode" / "extension.js")], check=True)
