"""The keys of `vllm serve --config`: every long option, as it is spelled on the command line."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .arguments import annotation, fields, literal, option_names
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def vllm(source: Source) -> Json:
    """The options of the engine and of the server, with the types and defaults of their fields."""
    types: dict[str, Json] = {}
    for path, name in (
        ("engine/arg_utils.py", "EngineArgs"),
        ("engine/arg_utils.py", "AsyncEngineArgs"),
        ("entrypoints/common/cli_args.py", "BaseFrontendArgs"),
        ("entrypoints/common/cli_args.py", "FrontendArgs"),
    ):
        types.update(fields(source.classes(path)[name], {}))
    types.update(config_defaults(source, types))
    names = [
        *option_names(source, "engine/arg_utils.py"),
        *option_names(source, "entrypoints/common/cli_args.py"),
        *(name.replace("_", "-") for name in types),
    ]
    properties = {name: types.get(name.replace("-", "_"), {}) for name in dict.fromkeys(names)}
    for name in ("max-model-len", "max-num-batched-tokens", "kv-cache-memory-bytes"):
        properties[name] = {**properties[name], "type": ["integer", "string"]}
    return whole("vLLM --config", properties, "refused")


def config_defaults(source: Source, engine: dict[str, Json]) -> dict[str, Json]:
    """The types and defaults that `EngineArgs` takes from the config classes (`dtype: ... = ModelConfig.dtype`)."""
    tree = source.tree("engine/arg_utils.py")
    cls = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "EngineArgs") if tree else None
    out: dict[str, Json] = {}
    for node in cls.body if cls else ():
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = node.value
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            found = config_field(source, value.value.id, value.attr)
            if found:
                out[node.target.id] = {**found, **engine.get(node.target.id, {})}
    return out


def config_field(source: Source, cls: str, name: str) -> Json:
    """The type and default of a field of one of vLLM's config classes."""
    for module in ("model", "cache", "parallel", "scheduler", "lora", "load", "multimodal", "compilation", "offload",
                   "observability", "kernel"):  # fmt: skip
        found = source.classes(f"config/{module}.py").get(cls)
        for node in found.body if found else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                schema = annotation(node.annotation, {})
                value: ast.expr | None = node.value
                if isinstance(value, ast.Call):
                    value = next((k.value for k in value.keywords if k.arg == "default"), None)
                known, default = literal(value, {}) if value is not None else (False, None)
                return {**schema, "default": default} if known else schema
    return {}
