"""Regenerate `models/modeling_classes.json` from the sources of an installed Transformers, read statically.

    python scripts/modeling_classes.py SITE_PACKAGES

A row is a model type of `linter/gpulint/models/architectures.jsonl`: the layer and block classes that its modeling file
defines, and the attention kernels that none of its classes accept (`_supports_sdpa`, `_supports_flash_attn`; False is
the default of `PreTrainedModel`).
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parent.parent / "linter/gpulint/models"
TARGET = MODELS / "modeling_classes.json"
LAYERS = ("Layer", "Block")
FLAGS = {"sdpa": "_supports_sdpa", "flash_attention": "_supports_flash_attn"}


def model_types(folder: Path) -> dict[str, str]:
    """Class of a config -> its `model_type`, from the configuration files of one folder."""
    found = {}
    for path in folder.glob("configuration_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for item in node.body if isinstance(node, ast.ClassDef) else ():
                value = assigned(item, "model_type")
                if isinstance(node, ast.ClassDef) and isinstance(value, str):
                    found[node.name] = value
    return found


def assigned(node: ast.stmt, name: str) -> Any:
    """The constant that a class body assigns to `name`, None where it assigns none."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if any(isinstance(target, ast.Name) and target.id == name for target in targets):
        value = node.value  # type: ignore[attr-defined]
        return value.value if isinstance(value, ast.Constant) else None
    return None


def rows(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The rows of one folder: one for each model type of its configurations."""
    layers: set[str] = set()
    refused = set(FLAGS)
    for path in folder.glob("modeling_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            if node.name.endswith(LAYERS):
                layers.add(node.name)
            if node.name.endswith("PreTrainedModel"):
                refused -= {word for word, flag in FLAGS.items() if not refuses(node, flag)}
    row = {"layers": sorted(layers), "refuses": sorted(refused)}
    return dict.fromkeys(sorted(set(model_types(folder).values())), row) if layers else {}


def refuses(node: ast.ClassDef, flag: str) -> bool:
    """Whether a class says no to a kernel, or says nothing and takes over the no of `PreTrainedModel`."""
    values = [value for item in node.body if (value := assigned(item, flag)) is not None]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return not values[-1] if values else "PreTrainedModel" in bases


def main(site: Path) -> None:
    """Write the table, one row a line."""
    models = site / "transformers/models"
    version = next(site.glob("transformers-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    known = {json.loads(line)["model_type"] for line in (MODELS / "architectures.jsonl").read_text().splitlines()}
    folders = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
    table = {name: row for folder in folders for name, row in rows(folder).items() if name in known}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table.items()))
    about = json.dumps(f"Layer classes and attention support of Transformers {version} (scripts/modeling_classes.py).")
    TARGET.write_text(f'{{\n"about": {about},\n"types": {{\n{lines}\n}}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
