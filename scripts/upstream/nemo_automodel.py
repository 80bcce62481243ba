"""The sections of a NeMo Automodel recipe."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .arguments import fields
from .schema import section, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .schema import Json
    from .source import Source


def read_keys(trees: Iterable[ast.Module], owners: tuple[str, ...]) -> set[str]:
    """Dotted keys that code reads: `cfg.get("a.b")` and `cfg.a.b`, where `cfg` is one of `owners`."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                if ast.unparse(node.func.value) in owners and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
            elif isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                owner = next((name for name in owners if text.startswith(name + ".")), None)
                if owner:
                    found.add(text[len(owner) + 1 :].partition("(")[0])
    return found


FORMER = (
    "rng",
    "autopipeline",
    "parallelizer",
    "autocast",
    "ci",
    "nvtx",
    "slurm",
    "separate_meshes",
    "dflash",
)
"""Sections that earlier releases read, that its launcher or its own CI reads, or that it reads by `hasattr`."""


def nemo_automodel(source: Source) -> Json:
    """The sections of a recipe: those with a class of their own refuse unknown keys, the others pass them on."""
    trees = [ast.parse(source.need(path)) for path in source.below("recipes/")]
    keys = read_keys(trees, ("self.cfg", "cfg", "self._raw", "self.raw"))
    node = source.classes("components/config/loader.py")["ConfigNode"]
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} | set(dir(dict))
    properties: dict[str, Json] = {}
    for key in sorted(keys):
        top = key.partition(".")[0]
        if top.isidentifier() and not top.startswith("_") and top not in methods:
            properties[top] = {}
    properties |= {name: {} for name in FORMER}
    distributed = "components/distributed/config.py"
    sizes = fields(source.classes("components/distributed/mesh.py")["ParallelismSizes"], {})
    for size in sizes.values():
        size["type"] = ["integer", "string", "null"]
    strategies: dict[str, Json] = {}
    for owner in ("FSDP2Config", "MegatronFSDPConfig", "DDPConfig"):
        for name, value in fields(source.classes(distributed)[owner], {}).items():
            strategies.setdefault(name, {} if name == "activation_checkpointing" else value)
    pipeline = fields(source.classes("components/distributed/pipelining/config.py")["PipelineConfig"], {})
    experts = fields(source.classes(distributed)["MoEParallelizerConfig"], {})
    meta: dict[str, Json] = {"_target_": {}, "_recursive_": {}, "_convert_": {}}
    properties["distributed"] = section(
        {
            "strategy": {"type": "string"}, **sizes, **strategies, "activation_checkpointing": {},
            "pipeline": section(pipeline, "refused"), "moe": section(experts, "refused"), **meta,
        },
        "refused",
    )  # fmt: skip
    properties["teacher_distributed"] = properties["distributed"]
    scheduler = fields(source.classes("components/training/step_scheduler.py")["StepSchedulerConfig"], {})
    runtime: dict[str, Json] = {"local_batch_size": {"type": "integer", "default": 1}, "dp_size": {}, "dataloader": {}}
    properties["step_scheduler"] = section({**scheduler, **runtime, **meta}, "refused")
    for name, path, owner in (
        ("peft", "components/_peft/lora.py", "PeftConfig"),
        ("lr_scheduler", "components/optim/optimizer.py", "LRSchedulerConfig"),
        ("compile", "components/utils/compile_utils.py", "CompileConfig"),
        ("fp8", "components/quantization/fp8.py", "FP8Config"),
    ):
        unknown = "refused" if name in ("peft", "lr_scheduler") else "ignored"
        own = fields(source.classes(path)[owner], {})
        if name == "peft":
            own = {key: value if value.get("type") != ["array", "string"] else {} for key, value in own.items()}
        properties[name] = section({**own, **meta}, unknown)
    properties["quantization"] = section(
        {key: {} for key in ("load_in_4bit", "load_in_8bit", *sorted(bits_and_bytes(source)))}, "ignored"
    )
    return whole("NeMo Automodel recipe", properties, "ignored")


def bits_and_bytes(source: Source) -> set[str]:
    """The keys that `create_bnb_config` reads."""
    tree = source.tree("components/quantization/qlora.py")
    return {key for key in read_keys([tree] if tree else [], ("config",)) if key.isidentifier() and key != "get"}
