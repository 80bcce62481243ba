"""The keys of `accelerate launch` configs, from accelerate's wheel."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import COUNT, TEXT, Json, section, whole

if TYPE_CHECKING:
    from .source import Source

SECTIONS = {
    "deepspeed_config": ("DeepSpeed Arguments", ""),
    "fsdp_config": ("FSDP Arguments", "fsdp_"),
    "megatron_lm_config": ("Megatron-LM Arguments", ""),
    "parallelism_config": ("ParallelismConfig Arguments", ""),
    "fp8_config": ("FP8 Arguments", "fp8_"),
}
"""Free dictionaries whose keys `accelerate launch` copies onto its arguments, with the prefix it adds where missing."""

OLD = {
    "fp16": {"type": "boolean", "deprecated": True, "x-replacement": "mixed_precision"},
    "dynamo_backend": {"type": "string", "deprecated": True, "x-replacement": "dynamo_config.dynamo_backend"},
}
"""Old keys that `BaseConfig.process_config` still converts."""


def accelerate(source: Source) -> Json:
    """`accelerate launch --config_file`: unknown top keys are refused, unknown keys of the sections have no effect."""
    classes = Classes({"config": source.need("commands/config/config_args.py")}, unknown_keys="refused")
    properties = classes.properties("ClusterConfig")
    properties |= {key: value for key, value in classes.properties("SageMakerConfig").items() if key not in properties}
    properties |= OLD
    properties["gpu_ids"] = {"type": ["string", "integer", "null"]}
    properties["mixed_precision"] = {"enum": ["no", "fp16", "bf16", "fp8", None]}
    groups = arguments(source.need("commands/launch.py"))
    for name, (group, prefix) in SECTIONS.items():
        keys = dict(groups[group])
        keys |= {key.removeprefix(prefix): value for key, value in groups[group].items() if prefix}
        properties[name] = {"anyOf": [section(keys, "ignored"), {"type": "null"}]}
    if "backend" not in groups["FP8 Arguments"]:
        properties["fp8_config"]["anyOf"][0]["properties"].update(
            amax_history_length=COUNT, amax_compute_algorithm=TEXT
        )
    properties["deepspeed_config"]["anyOf"][0]["properties"]["deepspeed_config_file"] = {"type": ["string", "null"]}
    return whole("accelerate launch config", properties, "refused")


def arguments(text: str) -> dict[str, Json]:
    """The options of every argument group of a parser by the group's title: {title: {dest: schema}}."""
    tree = ast.parse(text)
    titles: dict[str, str] = {}
    groups: dict[str, Json] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target = node.targets[0]
        if getattr(node.value.func, "attr", "") == "add_argument_group" and isinstance(target, ast.Name):
            title = node.value.args[0]
            assert isinstance(title, ast.Constant)
            titles[target.id] = str(title.value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        owner = getattr(getattr(node.func, "value", None), "id", "")
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        if owner in titles and names and str(names[0]).startswith("--"):
            groups.setdefault(titles[owner], {})[str(names[0])[2:].replace("-", "_")] = _option(node)
    return groups


def _option(node: ast.Call) -> Json:
    """One option: its values reach environment variables as text, so only the kind is held against it."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    kind = getattr(given.get("type"), "id", "")
    types: list[str] = {"int": ["integer", "null"], "float": ["number", "null"]}.get(
        kind, ["string", "boolean", "null"]
    )
    if kind == "str":
        types = ["string", "boolean", "number", "null"]
    schema: Json = {"type": types}
    default = given.get("default")
    if isinstance(default, ast.Constant) and default.value is not None:
        schema["default"] = default.value
    return schema
