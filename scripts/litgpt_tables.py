"""Makes `schemas/litgpt.json` and `linter/formats/litgpt_models.json` from a checkout of LitGPT, with `ast`.

    python -m scripts.litgpt_tables CHECKOUT VERSION

The schema is the union of the parameters of the `setup` functions that jsonargparse exposes; the table lists the models
of `litgpt/config.py`: LitGPT's name, the checkpoint on the hub and the rows of the embedding where they are stated.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from scripts.argument_source import annotation, fields, literal

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = (
    "finetune/lora",
    "finetune/lora_legacy",
    "finetune/full",
    "finetune/adapter",
    "finetune/adapter_v2",
    "pretrain",
)
SECTIONS = {"train": "TrainArgs", "eval": "EvalArgs", "log": "LogArgs"}


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object whose unknown keys jsonargparse refuses."""
    return {"type": "object", "properties": properties, "x-unknown-keys": "refused", "additionalProperties": False}


def setup(tree: ast.Module) -> dict[str, Any]:
    """The parameters of a script's `setup`."""
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "setup")
    count = len(node.args.args) - len(node.args.defaults)
    found = {}
    for number, argument in enumerate(node.args.args):
        schema = annotation(argument.annotation, {}) if argument.annotation else {}
        if number >= count:
            known, value = literal(node.args.defaults[number - count], {})
            if known:
                schema["default"] = value
        found[argument.arg] = schema
    return found


def models(tree: ast.Module) -> list[list[Any]]:
    """[LitGPT name, hub id, rows of the embedding or 0, multiple that they are padded to or 0] in the file's order."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "dict":
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if not {"name", "hf_config"} <= set(given) or not isinstance(given["hf_config"], ast.Call):
            continue
        hub = {k.arg: ast.literal_eval(k.value) for k in given["hf_config"].keywords}
        numbers = [
            ast.literal_eval(given[key]) if key in given else 0 for key in ("padded_vocab_size", "padding_multiple")
        ]
        found.append([ast.literal_eval(given["name"]), f"{hub['org']}/{hub['name']}", *numbers])
    return found


def main() -> None:
    """Write both files."""
    folder, version = Path(sys.argv[1]) / "litgpt", sys.argv[2]
    properties: dict[str, Any] = {}
    for script in SCRIPTS:
        for key, schema in setup(ast.parse((folder / f"{script}.py").read_text())).items():
            properties.setdefault(key, schema)
    arguments = {n.name: n for n in ast.parse((folder / "args.py").read_text()).body if isinstance(n, ast.ClassDef)}
    for key, name in SECTIONS.items():
        properties[key] = closed(fields(arguments[name], {}))
    config = ast.parse((folder / "config.py").read_text())
    shape = next(n for n in config.body if isinstance(n, ast.ClassDef) and n.name == "Config")
    properties["model_config"] = {"anyOf": [closed(fields(shape, {})), {"type": ["string", "null"]}]}
    for key in ("data", "optimizer", "devices", "resume", "quantize"):
        properties[key] = {}
    stamp = f"litgpt {version}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "x-upstream": stamp, "x-coercion": "yaml"}
    schema = {**head, **closed(dict(sorted(properties.items())))}
    (ROOT / "schemas" / "litgpt.json").write_text(json.dumps(schema, indent=1) + "\n")
    rows = ",\n".join(json.dumps(row) for row in models(config))
    table = f'{{"upstream": "{stamp}", "models": [\n{rows}\n]}}\n'
    (ROOT / "linter" / "formats" / "litgpt_models.json").write_text(table)


if __name__ == "__main__":
    main()
