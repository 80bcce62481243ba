"""A clean check must not import what it does not need: the start-up time of every hook run."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "torch", "transformers", "rich", "pydantic", "jsonschema", "ruamel", "requests", "httpx", "huggingface_hub",
    "socket", "ssl", "urllib.request", "http.client", "asyncio", "importlib.metadata", "concurrent.futures",
    "multiprocessing",
)  # fmt: skip


@pytest.mark.parametrize("file", ["llama3-8b-qlora.yaml", "serve-llama3-70b.yaml"])
def test_check_imports_only_what_the_file_needs(root, file):
    code = (
        "import sys\n"
        "from gpulint.cli import main\n"
        f"try:\n    main(['check', '--isolated', {str(root / 'examples' / file)!r}])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "gpulint.rules.engine" in loaded
    assert [name for name in HEAVY if name in loaded] == []
