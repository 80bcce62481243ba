"""The sections `policy` and `cluster` of a NeMo RL config, and the configs that others inherit from."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, Any

import yaml

from .arguments import as_list
from .schema import section, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .schema import Json
    from .source import Source


def typed(source: Source, paths: Iterable[str], unknown: str) -> Callable[[str], dict[str, Json]]:
    """A reader of TypedDicts and pydantic models by name, nested ones as sections."""
    classes: dict[str, ast.ClassDef] = {}
    for path in paths:
        classes |= source.classes(path)

    def properties(name: str, depth: int = 0) -> dict[str, Json]:
        cls = classes[name]
        out: dict[str, Json] = {}
        for base in cls.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                out |= properties(base.id, depth)
        for node in cls.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                out[node.target.id] = value(node.annotation, depth)
        return out

    def value(node: ast.expr, depth: int) -> Json:
        text = ast.unparse(node)
        named = [name for name in re.findall(r"\w+", text) if name in classes]
        if named and depth < 8 and not re.search(r"(?i)\b(list|dict|sequence)\[", text):
            merged: dict[str, Json] = {}
            for name in named:
                for key, item in properties(name, depth + 1).items():
                    merged[key] = item if key not in merged or item.get("properties") else merged[key]
            return section(merged, unknown)
        inner = re.fullmatch(r"(?:NotRequired|Required|Annotated)\[(.*)\]", text, re.DOTALL)
        scalars = {"int": "integer", "float": "number"}
        names = {part.strip() for part in (inner[1] if inner else text).split("|")} - {"None"}
        kinds = [scalars[name] for name in sorted(names) if name in scalars]
        return {"type": kinds[0]} if len(kinds) == 1 == len(names) else {}

    return properties


def nemo_rl(source: Source) -> Json:
    """The sections `policy` and `cluster` from their TypedDicts, which nobody checks; the others are left alone."""
    modules = (
        "models/policy/__init__.py", "models/generation/interfaces.py", "models/generation/vllm/config.py",
        "distributed/virtual_cluster.py",
    )  # fmt: skip
    read = typed(source, [f"nemo_rl/{path}" for path in modules], "ignored")
    policy = read("PolicyConfig")
    policy["dtensor_cfg"]["properties"]["automodel_kwargs"] = {}  # passed on to Automodel as it is
    engine = read("VllmSpecificArgs")
    generation = policy.get("generation", section({}))
    trees = [ast.parse(source.need(path)) for path in source.below("nemo_rl/")]
    names = string_keys(trees)
    used = {key for path in source.below("examples/", ".yaml") for key in yaml_keys(source.need(path))}
    generation["properties"] |= {"vllm_cfg": section(engine, "ignored")}
    policy["generation"] = generation
    top: dict[str, Any] = {key.partition(".")[0]: {} for key in used}
    for key in sorted(used):
        parts = key.split(".")
        if parts[0] == "policy":
            allow(policy, parts[1:], names)
    properties: dict[str, Json] = {**{name: {} for name in sorted(top)}, "policy": section(policy, "ignored")}
    properties["cluster"] = section(read("ClusterConfig"), "ignored")
    for place in passed_on(trees):
        open_up(properties, place)
    return whole("NeMo RL config", properties, "ignored")


def passed_on(trees: Iterable[ast.Module]) -> set[tuple[str, ...]]:
    """The places of sections that code passes on whole: `Class(**config["megatron_cfg"]["scheduler"])`."""
    found: set[tuple[str, ...]] = set()
    for tree in trees:
        for node in ast.walk(tree):
            for word in node.keywords if isinstance(node, ast.Call) else ():
                if word.arg is None:
                    steps = re.findall(r"\['(\w+)'\]", ast.unparse(word.value))
                    if steps and ast.unparse(word.value).endswith("']"):
                        found.add(("policy", *steps))
    return found


def open_up(properties: dict[str, Json], place: tuple[str, ...]) -> None:
    """Allow any key in the section at a place, where there is one."""
    for step in place[:-1]:
        properties = properties.get(step, {}).get("properties", {})
    if "properties" in properties.get(place[-1], {}):
        properties[place[-1]] = {}


def string_keys(trees: Iterable[ast.Module]) -> set[str]:
    """Every string that some code holds: keys that are read by name."""
    return {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def yaml_keys(text: str) -> set[str]:
    """The dotted keys of a YAML text."""
    found: set[str] = set()

    def walk(value: object, prefix: str) -> None:
        for key, item in value.items() if isinstance(value, dict) else ():
            found.add(f"{prefix}{key}")
            walk(item, f"{prefix}{key}.")

    walk(yaml.safe_load(text), "")
    return found


def allow(properties: dict[str, Json], parts: list[str], names: set[str]) -> None:
    """Add a key that upstream's own configs use and its code names somewhere; open what is not described."""
    for part in parts[:-1]:
        child = properties.get(part)
        if child is None or "properties" not in child:
            return
        properties = child["properties"]
    if parts and parts[-1] in names:
        properties.setdefault(parts[-1], {})


def shipped(source: Source, place: str, keep: Callable[[str], bool]) -> Json:
    """The configs below `place` of a source tree, with the keys that `keep` wants."""

    def kept(value: object, prefix: str) -> object:
        if not isinstance(value, dict):
            return value
        parts = {key: kept(item, f"{prefix}{key}.") for key, item in value.items() if keep(f"{prefix}{key}")}
        return {key: item for key, item in parts.items() if item != {}}

    files: dict[str, Any] = {}
    for path in source.below(place, ".yaml"):
        value = yaml.safe_load(source.need(path))
        if isinstance(value, dict):
            files[path] = kept(value, "")
    parents = {
        os.path.normpath(os.path.join(os.path.dirname(path), name))
        for path, value in files.items()
        for name in as_list(value.get("defaults"))
    }
    return {"files": {path: value for path, value in files.items() if path in parents}}


_KEEP = re.compile(
    r"defaults$|(policy|value|teacher)$|policy\.(?!tokenizer|scheduler|hf_config_overrides|draft|max_grad_norm)[^.]+$"
    r"|policy\.optimizer\.\w+$|policy\.optimizer\.kwargs\.(foreach|fused|master_weights)"
    r"|policy\.(dtensor_cfg|sequence_packing|dynamic_batching)\."
    r"|policy\.megatron_cfg\.(enabled|activation_checkpointing|recompute\w+|\w*parallel\w*|num_layers_in\w+|peft.*"
    r"|optimizer$|optimizer\.(optimizer|params_dtype|use_\w+|optimizer_\w+|bf16)|fp8_cfg.*|defer_fp32_logits"
    r"|distributed_data_parallel_config.*|use_fused_linear_logprobs|fused_linear\w+)"
    r"|policy\.generation\.(backend|max_new_tokens|colocated.*|\w+_cfg$|vllm_kwargs$)"
    r"|policy\.generation\.\w+_cfg\.(\w*parallel_size|\w*gpu_memory\w*|max_model_len|precision|mem_fraction_static"
    r"|enforce_eager|kv_cache_dtype|tp_size|async_engine)"
    r"|policy\.generation\.vllm_kwargs\.(max_num\w+|kv_cache_memory_bytes)"
    r"|(value|teacher)\.model_name|data$|data\.max_input_seq_length|cluster$|cluster\.(gpus_per_node|num_nodes)"
    r"|loss_fn$|loss_fn\.reference_policy_kl_penalty|(grpo|sft|dpo|rm|ppo|distillation)$"
    r"|(grpo|ppo|distillation)\.num_(generations|prompts)\w+|(grpo|ppo)\.async_grpo.*"
    r"|(dpo|rm|sft|grpo|ppo|distillation)\.val_\w+"
)
"""Keys of NeMo RL's own configs that decide memory, or the way to them."""


def nemo_rl_shipped(source: Source) -> Json:
    """The configs of `examples/`, from which others inherit."""
    return shipped(source, "examples/", lambda key: _KEEP.match(key) is not None)
