"""Makes `schemas/gpt_neox.json` from a git repository of GPT-NeoX, with `ast`.

    python scripts/neox_tables.py REPOSITORY VERSION [TAG ...]

The keys are the fields of the dataclasses in megatron/neox_arguments; those of each TAG are known too, because configs
are kept beside the release that they ran with.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from scripts.schema_source import Classes

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "megatron/neox_arguments"


def git(repository: str, *arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=True).stdout


def fields(repository: str, revision: str) -> set[str]:
    """The fields of all argument classes of a revision."""
    listed = git(repository, "ls-tree", "-r", "--name-only", revision, FOLDER).split()
    sources = {path: git(repository, "show", f"{revision}:{path}") for path in listed if path.endswith("_args.py")}
    classes = Classes(sources)
    found: set[str] = set()
    for name, node in classes.classes.items():
        if any("dataclass" in ast.unparse(item) for item in node.decorator_list):
            found |= set(classes.properties(name))
    return found


def main() -> None:
    """Write the schema."""
    repository, version, *tags = sys.argv[1:]
    names: set[str] = set()
    for revision in ("HEAD", *tags):
        names |= fields(repository, revision)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-upstream": f"gpt-neox {version}",
        "x-coercion": "yaml",
        "x-unknown-keys": "refused",
        "type": "object",
        "properties": {name: {} for name in sorted(names)},
    }
    text = json.dumps(schema, separators=(",", ":")).replace('},"', '},\n"')
    (ROOT / "schemas" / "gpt_neox.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
