"""The options of torchtitan's TOML and the flavours of its models."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from .classes import Classes
from .schema import Json, section, whole

if TYPE_CHECKING:
    from .source import Source

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


def torchtitan(source: Source) -> Json:
    """The dataclasses of `JobConfig`; unknown keys are refused."""
    classes = Classes(source.texts(["config/job_config.py"]), "refused")
    job = classes.object("JobConfig")
    return whole("torchtitan TOML", job["properties"], "refused", "pydantic", definitions=classes.definitions)


def torchtitan_argparse(source: Source) -> Json:
    """`--section.name` of argparse, by section."""
    sections: Json = {}
    for name, option in re.findall(r"\"--([a-z_0-9]+)\.([a-z_0-9]+)\"", source.need("config_manager.py")):
        sections.setdefault(name, section({}, "refused"))["properties"][option] = {}
    return whole("torchtitan TOML of the first releases", sections, "refused", "pydantic")


def torchtitan_models(source: Source, old: Source) -> Json:
    """The flavours of every language model, those of Llama 2 and 3 as they stood in one table each among them."""
    classes: dict[str, dict[str, Any]] = {}
    defaults(ast.parse(old.need("models/llama/model.py")), classes)
    found: dict[str, Any] = {}
    for node in ast.parse(old.need("models/llama/__init__.py")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and "_configs" in ast.unparse(node):
            name = ast.unparse(node.targets[0]).removesuffix("_configs")
            found[name] = flavours(ast.Module([node], []), classes)
    for family in FAMILIES:
        folder = f"models/{family}"
        classes = {}
        for path in ("models/moe/moe.py", f"{folder}/model/args.py"):
            defaults(ast.parse(source.need(path)), classes)
        found[family] = flavours(ast.parse(source.need(f"{folder}/__init__.py")), classes)
    return {"models": found}
