"""Makes `schemas/megatron.json`: every option that Megatron-LM's training scripts have taken.

    python -m scripts.megatron_tables REPOSITORY VERSION [TAG ...]

REPOSITORY is a git repository of Megatron-LM; its HEAD has VERSION, and each TAG is read as well, because scripts run
with whatever checkout they stand beside. Options are the constants of `add_argument` calls and the fields of the
dataclasses that `ArgumentGroupFactory` turns into options (megatron/training/argument_utils.py), read with `ast`.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = re.compile(
    r"^(megatron/(training/)?arguments\.py|megatron/training/config/.*\.py|pretrain_.*\.py|tasks/main\.py"
    r"|megatron/core/(transformer/transformer_config|model_parallel_config|tokenizers/.*config)\.py|gpt_builders\.py"
    r"|megatron/(training/)?(tokenizer|checkpointing|inprocess_restart)[^/]*\.py|examples/.*/arguments\.py)$"
)


def git(repository: str, *arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=True).stdout


def options(text: str) -> tuple[set[str], set[str]]:
    """The options of a module, and those among them that take no value, with underscores."""
    found: set[str] = set()
    switches: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
            names = {a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
            spelled = {str(name)[2:].replace("-", "_") for name in names}
            found |= spelled
            if any(k.arg == "action" and "store_" in ast.unparse(k.value) for k in node.keywords):
                switches |= spelled
        elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    name = item.target.id
                    found.add(name)
                    named = re.findall(r"'--([a-z0-9_-]+)'", ast.unparse(item.value) if item.value else "")
                    found |= {other.replace("-", "_") for other in named}
                    if ast.unparse(item.annotation).startswith(("bool", "Optional[bool]")):
                        switches |= {name, f"no_{name}", f"disable_{name}"}
                        found |= {f"no_{name}", f"disable_{name}"}
    return found, switches


def main() -> None:
    """Write the schema."""
    repository, version, *tags = sys.argv[1:]
    found: set[str] = set()
    switches: set[str] = set()
    for revision in ("HEAD", *tags):
        for path in git(repository, "ls-tree", "-r", "--name-only", revision).splitlines():
            if FILES.match(path):
                names, flags = options(git(repository, "show", f"{revision}:{path}"))
                found |= names
                switches |= flags
    properties = {name: {"type": "boolean"} if name in switches else {} for name in sorted(found)}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-upstream": f"Megatron-LM {version}",
        "x-coercion": "yaml",
        "x-unknown-keys": "refused",
        "type": "object",
        "properties": properties,
    }
    text = json.dumps(schema, separators=(",", ":")).replace('},"', '},\n"')
    (ROOT / "schemas" / "megatron.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
