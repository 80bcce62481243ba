"""Makes `schemas/torchtitan.json` and `linter/formats/torchtitan_models.json` from checkouts of torchtitan, with `ast`.

    python scripts/torchtitan_tables.py CHECKOUT VERSION OLD_CHECKOUT OLD_VERSION

CHECKOUT is the last commit that read TOML (before 9810191bb), OLD_CHECKOUT one whose options argparse declared
(6a6f755d2). Read are the dataclasses of `JobConfig`, the options `--section.name` and the flavours of each model.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from scripts.schema_source import Classes

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = {
    "llama3": "TransformerModelArgs", "llama4": "TransformerModelArgs", "qwen3": "Qwen3ModelArgs",
    "deepseek_v3": "DeepSeekV3ModelArgs", "gpt_oss": "GptOssModelArgs",
}  # fmt: skip
SIZES = (
    "dim", "layers", "heads", "hidden", "vocab", "moe", "lora", "experts", "top_k", "multiple", "ffn", "tying", "step",
)  # fmt: skip


def literal(node: ast.expr, classes: dict[str, dict[str, Any]]) -> Any:
    """A constant, or the arguments of a nested dataclass; None for what is neither."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in classes:
        return call(node, classes)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def call(node: ast.Call, classes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The arguments of a dataclass call over the class's defaults."""
    given = {k.arg: literal(k.value, classes) for k in node.keywords if k.arg}
    return {**classes.get(ast.unparse(node.func), {}), **given}


def defaults(tree: ast.Module, classes: dict[str, dict[str, Any]]) -> None:
    """Note the defaults of each dataclass of a module; a `default_factory` of a noted class gives its defaults."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        found: dict[str, Any] = {}
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
                value = item.value
                if isinstance(value, ast.Call):
                    factory = next((ast.unparse(k.value) for k in value.keywords if k.arg == "default_factory"), "")
                    found[item.target.id] = classes.get(factory)
                else:
                    found[item.target.id] = literal(value, classes)
        classes.setdefault(node.name, found)


def flavours(tree: ast.Module, classes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The flavours of a module's tables: `{"8B": ModelArgs(...)}`."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                    found[str(key.value)] = kept(call(value, classes))
    return found


def kept(given: dict[str, Any]) -> dict[str, Any]:
    """The sizes among the arguments."""
    named = {key: kept(value) if isinstance(value, dict) else value for key, value in given.items()}
    return {key: value for key, value in named.items() if value is not None and any(part in key for part in SIZES)}


def models(checkout: Path) -> dict[str, Any]:
    """The flavours of every language model."""
    found: dict[str, Any] = {}
    for family in FAMILIES:
        folder = checkout / "torchtitan" / "models" / family
        classes: dict[str, dict[str, Any]] = {}
        for path in (checkout / "torchtitan/models/moe/moe.py", folder / "model" / "args.py"):
            defaults(ast.parse(path.read_text()), classes)
        found[family] = flavours(ast.parse((folder / "__init__.py").read_text()), classes)
    return found


def old_models(checkout: Path) -> dict[str, Any]:
    """The flavours of Llama 2 and 3 as they stood in one table each."""
    folder = checkout / "torchtitan" / "models" / "llama"
    classes: dict[str, dict[str, Any]] = {}
    defaults(ast.parse((folder / "model.py").read_text()), classes)
    tree = ast.parse((folder / "__init__.py").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and "_configs" in ast.unparse(node):
            name = ast.unparse(node.targets[0]).removesuffix("_configs")
            found[name] = flavours(ast.Module([node], []), classes)
    return found


def old_options(checkout: Path) -> dict[str, Any]:
    """`--section.name` of argparse, by section."""
    text = (checkout / "torchtitan" / "config_manager.py").read_text()
    sections: dict[str, Any] = {}
    for section, name in re.findall(r"\"--([a-z_0-9]+)\.([a-z_0-9]+)\"", text):
        sections.setdefault(section, closed())["properties"][name] = {}
    return sections


def closed() -> dict[str, Any]:
    """An object that refuses unknown keys."""
    return {"type": "object", "properties": {}, "x-unknown-keys": "refused", "additionalProperties": False}


def main() -> None:
    """Write both files."""
    checkout, version, old, old_version = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    source = (checkout / "torchtitan" / "config" / "job_config.py").read_text()
    classes = Classes({"job_config": source}, "refused")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "x-coercion": "pydantic"}
    schema = {**head, "x-upstream": f"torchtitan {version}", **classes.object("JobConfig")}
    schema["$defs"] = dict(sorted(classes.definitions.items()))
    (ROOT / "schemas" / "torchtitan.json").write_text(json.dumps(schema, indent=1) + "\n")
    older = {**head, "x-upstream": f"torchtitan {old_version}", **closed(), "properties": old_options(old)}
    (ROOT / "schemas" / "torchtitan_argparse.json").write_text(json.dumps(older, indent=1) + "\n")
    table = {"upstream": f"torchtitan {version}", "models": {**old_models(old), **models(checkout)}}
    text = json.dumps(table, separators=(",", ":"))
    (ROOT / "linter/formats/torchtitan_models.json").write_text(text.replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
