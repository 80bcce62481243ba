"""The keys that torchtune's recipes read, the parameters of its components and its model builders."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

FAMILIES = (
    "llama2", "llama3", "llama3_1", "llama3_2", "mistral", "gemma", "gemma2", "phi3", "qwen2", "qwen3",
)  # fmt: skip
"""Decoders that `formats/torchtune_model.py` knows as an architecture of Transformers."""

DROPPED = ("attn_dropout", "norm_eps", "rope_base", "scale_factor", "query_pre_attn_scalar")
"""Arguments that no memory depends on."""


class Sources:
    """The functions and classes of a package by their public dotted path."""

    def __init__(self, source: Source) -> None:
        self.trees: dict[str, ast.Module] = {}
        for path in source.below("torchtune/"):
            name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            self.trees[name] = ast.parse(source.need(path))

    def find(self, dotted: str, depth: int = 0) -> ast.AST | None:
        """What a dotted path names, through the imports of its module."""
        module, _, name = dotted.rpartition(".")
        for node in self.trees.get(module, ast.Module([], [])).body if depth < 8 else ():
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return node.value
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.find(f"{self.origin(node, module)}.{alias.name}", depth + 1)
        return None

    def origin(self, node: ast.ImportFrom, module: str) -> str:
        """The module that an import takes from; `module` is a package where its tree is an `__init__`."""
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        inside = any(name.startswith(f"{module}.") for name in self.trees)
        parts = parts[: len(parts) - node.level + (1 if inside else 0)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def public(self) -> list[str]:
        """Dotted paths of all that the modules define or import."""
        found = []
        for module, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    found.append(f"{module}.{node.name}")
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    found.append(f"{module}.{node.targets[0].id}")
                elif isinstance(node, ast.ImportFrom) and self.origin(node, module).startswith("torchtune"):
                    found += [f"{module}.{alias.asname or alias.name}" for alias in node.names]
        return [name for name in found if not any(part.startswith("_") for part in name.split("."))]


def parameters(node: ast.AST, sources: Sources, module: str, depth: int = 0) -> dict[str, Any] | None:
    """The parameters of a function or class with their defaults; None where they are open (`**kwargs`) or unknown."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "partial" and depth < 4:
        inner = sources.find(f"{module}.{ast.unparse(node.args[0])}")
        found = parameters(inner, sources, module, depth + 1) if inner is not None else None
        if found is not None:
            found = {**found, **{k.arg: constant(k.value) for k in node.keywords if k.arg}}
        return found
    if isinstance(node, ast.Name) and depth < 4:
        inner = sources.find(f"{module}.{node.id}")
        return parameters(inner, sources, module, depth + 1) if inner is not None else None
    if isinstance(node, ast.ClassDef):
        node = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)  # type: ignore[assignment]
    if not isinstance(node, ast.FunctionDef) or node.args.kwarg is not None:
        return None
    arguments = [*node.args.posonlyargs, *node.args.args]
    defaults: list[Any] = [...] * (len(arguments) - len(node.args.defaults)) + [constant(d) for d in node.args.defaults]
    found = {a.arg: value for a, value in zip(arguments, defaults, strict=True) if a.arg != "self"}
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        found[argument.arg] = constant(default) if default is not None else ...
    return found


def constant(node: ast.expr) -> Any:
    """The value of a literal; `...` for anything else."""
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError):
        return ...
    return value


def builder(node: ast.AST, sources: Sources, module: str) -> dict[str, Any] | None:
    """The component builder that a model builder calls, and the constants that it gives it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "partial":
        inner = sources.find(f"{module}.{ast.unparse(node.args[0])}")
        row = builder(inner, sources, module) if inner is not None else None
        preset = {k.arg: constant(k.value) for k in node.keywords if k.arg}
        return {**row, "arguments": {**row["arguments"], **preset}} if row else None
    if isinstance(node, ast.Name):
        inner = sources.find(f"{module}.{node.id}")
        return builder(inner, sources, module) if inner is not None else None
    if not isinstance(node, ast.FunctionDef):
        return None
    last = next((n.value for n in reversed(node.body) if isinstance(n, ast.Return)), None)
    if not isinstance(last, ast.Call) or not any(k.arg in ("embed_dim", "num_layers") for k in last.keywords):
        return None
    own = parameters(node, sources, module) or {}
    given = {name: value for name, value in own.items() if value is not ...}
    given |= {k.arg: constant(k.value) for k in last.keywords if k.arg and constant(k.value) is not ...}
    name = ast.unparse(last.func)
    below = sources.find(f"{module}.{name}")
    base = parameters(below, sources, module) if below is not None else None
    given = {**{k: v for k, v in (base or {}).items() if v is not ...}, **given}
    return {"family": name.removeprefix("lora_"), "lora": name.startswith("lora_"), "arguments": given}


def models(sources: Sources) -> dict[str, Any]:
    """Every public model builder of `torchtune.models.*`."""
    found: dict[str, Any] = {}
    for package in sorted(name for name in sources.trees if name.count(".") == 2 and "models." in name):
        module = f"{package}._model_builders"
        for dotted in sources.public():
            if dotted.rpartition(".")[0] != package:
                continue
            node = sources.find(dotted)
            row = builder(node, sources, module) if node is not None else None
            own = parameters(node, sources, module) if isinstance(node, ast.FunctionDef) else None
            if row is None and own and {"embed_dim", "num_layers", "vocab_size"} <= set(own):
                name = dotted.rpartition(".")[2]
                given = {key: value for key, value in own.items() if value is not ...}
                row = {"family": name.removeprefix("lora_"), "lora": name.startswith("lora_"), "arguments": given}
            if row and row["family"] in FAMILIES:
                row["arguments"] = {key: value for key, value in row["arguments"].items() if key not in DROPPED}
                found[dotted] = row
    return found


def recipe_keys(source: Source) -> set[str]:
    """The top keys that recipes read: `cfg.x` and `cfg.get("x")`."""
    keys: set[str] = set()
    for path in source.below("recipes/"):
        text = source.need(path)
        keys |= set(re.findall(r"\b(?:self\.)?_?cfg\.([a-z_][a-z0-9_]*)\b(?!\()", text))
        keys |= set(re.findall(r"\bcfg\.(?:get|pop)\(\s*\"([a-z_][a-z0-9_]*)\"", text))
        keys |= set(re.findall(r"\"([a-z_][a-z0-9_]*)\" (?:not )?in cfg\b", text))
    return keys - {"get", "pop"}


def torchtune(source: Source) -> Json:
    """The keys of the recipes; `x-components` holds the parameters of whatever a `_component_` may name."""
    sources = Sources(source)
    components = {}
    for dotted in sorted(set(sources.public())):
        node = sources.find(dotted)
        names = parameters(node, sources, dotted.rpartition(".")[0]) if node is not None else None
        if isinstance(node, ast.ClassDef) and node.bases and names is None:
            continue
        if names is not None and not dotted.endswith("recipe_main"):
            components[dotted] = sorted(names)
    known: Json = {key: {} for key in sorted({*recipe_keys(source), "custom_sharded_layers"})}
    return whole("torchtune recipe config", known, "ignored", x_components=components)


def builders(source: Source) -> Json:
    """For each model builder the component builder it calls and the constants that it gives it."""
    return {"models": dict(sorted(models(Sources(source)).items()))}
