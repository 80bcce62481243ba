"""The parameters of LitGPT's `setup` functions, which jsonargparse exposes, and the models that it names."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from .arguments import annotation, fields, literal
from .schema import section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

SCRIPTS = (
    "finetune/lora",
    "finetune/lora_legacy",
    "finetune/full",
    "finetune/adapter",
    "finetune/adapter_v2",
    "pretrain",
)
SECTIONS = {"train": "TrainArgs", "eval": "EvalArgs", "log": "LogArgs"}


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


def litgpt(source: Source) -> Json:
    """The union of the scripts' parameters; jsonargparse refuses others."""
    properties: dict[str, Any] = {}
    for script in SCRIPTS:
        text = source.text(f"{script}.py")
        for key, part in setup(ast.parse(text)).items() if text is not None else ():
            properties.setdefault(key, part)
    arguments = source.classes("args.py")
    for key, name in SECTIONS.items():
        if name in arguments:
            properties[key] = section(fields(arguments[name], {}), "refused")
    shape = fields(source.classes("config.py")["Config"], {})
    properties["model_config"] = {"anyOf": [section(shape, "refused"), {"type": ["string", "null"]}]}
    for key in ("data", "optimizer", "devices", "resume", "quantize"):
        properties[key] = {}
    return whole("LitGPT config", dict(sorted(properties.items())), "refused")


def litgpt_models(source: Source) -> Json:
    """LitGPT's name of a model, its checkpoint on the hub and the rows of its embedding where they are stated."""
    return {"models": models(ast.parse(source.need("config.py")))}
