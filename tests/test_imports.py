"""A clean check must not import what it does not need: the start-up time of every hook run."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

HEAVY = (
    "torch", "transformers", "rich", "pydantic", "jsonschema", "ruamel", "requests", "httpx", "huggingface_hub",
    "socket", "ssl", "urllib.request", "http.client", "asyncio", "importlib.metadata", "concurrent.futures",
    "multiprocessing",
)  # fmt: skip


def modules_of_a_check(*arguments: str) -> set[str]:
    code = (
        "import sys\n"
        "from gpulint.cli import main\n"
        f"try:\n    main(['check', *{arguments!r}])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("file", ["llama3-8b-qlora.yaml", "serve-llama3-70b.yaml"])
def test_check_imports_only_what_the_file_needs(root, file):
    loaded = modules_of_a_check("--isolated", str(root / "examples" / file))
    assert "gpulint.rules.engine" in loaded
    assert [name for name in HEAVY if name in loaded] == []


@pytest.mark.parametrize("output", ["json", "json-lines", "sarif", "full"])
def test_no_output_of_a_clean_check_needs_a_library(root, output):
    """Every JSON is declared as what pydantic can read; printing it takes no pydantic, and a terminal no rich."""
    loaded = modules_of_a_check("--isolated", "--output-format", output, str(root / "examples/llama3-8b-qlora.yaml"))
    assert [name for name in HEAVY if name in loaded] == []


def test_settings_and_team_rules_that_are_right_cost_no_library(root, tmp_path):
    shutil.copy(root / "examples" / "llama3-8b-qlora.yaml", tmp_path / "train.yaml")
    shutil.copytree(root / "rules" / "waste", tmp_path / "mine")
    for path in (tmp_path / "mine").iterdir():
        path.write_text(path.read_text().replace("id: GPU", "id: TEAM").replace("name: ", "name: our-"))
    (tmp_path / "gpulint.toml").write_text(SETTINGS)
    loaded = modules_of_a_check(str(tmp_path / "train.yaml"))
    assert {"gpulint.settings.file", "gpulint.rules.compile"} <= loaded
    assert [name for name in HEAVY if name in loaded] == []


SETTINGS = """\
gpu = "h100-80gb"
gpus = 2
headroom = "2 GiB"
rules = ["mine"]
exclude = ["old/**"]
preview = true
[severity]
memory-tight = "error"
[versions]
trl = "0.19"
[[overrides]]
files = ["*.yaml"]
gpus = 1
[[suppressions]]
file = "*.yaml"
rules = ["memory-tight"]
"""
