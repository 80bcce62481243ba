"""Write the schemas of training tools around Hugging Face models from their repositories, read statically.

    python -m scripts.rl_schemas FOLDER [nemo_automodel ...]

FOLDER holds an unpacked source tree `name-version` of every package in `PACKAGES` (`git archive` of its release).
Nothing is imported: classes and the keys that code reads by name are found with `ast`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.argument_schemas import dump
from scripts.argument_source import Json, Package, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PACKAGES = {"nemo_automodel": "0.5.0"}


def section(properties: dict[str, Json], unknown: str = "") -> Json:
    """A mapping; without a word on unknown keys any are allowed."""
    return {"type": "object", **({"x-unknown-keys": unknown} if unknown else {}), "properties": properties}


def whole(title: str, upstream: str, properties: dict[str, Json], unknown: str) -> Json:
    """The schema file around the properties."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "x-upstream": upstream,
        "x-unknown-keys": unknown,
        "x-coercion": "yaml",
        "type": "object",
        "properties": properties,
    }


def parameters(package: Package, path: str, owner: str, name: str) -> dict[str, Json]:
    """The arguments of a method or of an `__init__`, without `self`."""
    cls = package.classes(path)[owner]
    function = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return {arg.arg: {} for arg in function.args.args + function.args.kwonlyargs if arg.arg not in ("self", "cls")}


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


AUTOMODEL_FORMER = (
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


def nemo_automodel(folder: Path) -> Json:
    """The sections of a recipe: those with a class of their own refuse unknown keys, the others pass them on."""
    package = Package(folder, "nemo_automodel", PACKAGES["nemo_automodel"])
    root = folder / f"nemo_automodel-{PACKAGES['nemo_automodel']}" / "nemo_automodel"
    trees = [ast.parse(path.read_text()) for path in sorted((root / "recipes").rglob("*.py"))]
    keys = read_keys(trees, ("self.cfg", "cfg", "self._raw", "self.raw"))
    node = package.classes("components/config/loader.py")["ConfigNode"]
    methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} | set(dir(dict))
    properties: dict[str, Json] = {}
    for key in sorted(keys):
        top = key.partition(".")[0]
        if top.isidentifier() and not top.startswith("_") and top not in methods:
            properties[top] = {}
    properties |= {name: {} for name in AUTOMODEL_FORMER}
    distributed = "components/distributed/config.py"
    sizes = fields(package.classes("components/distributed/mesh.py")["ParallelismSizes"], {})
    for size in sizes.values():
        size["type"] = ["integer", "string", "null"]
    strategies: dict[str, Json] = {}
    for owner in ("FSDP2Config", "MegatronFSDPConfig", "DDPConfig"):
        for name, value in fields(package.classes(distributed)[owner], {}).items():
            strategies.setdefault(name, {} if name == "activation_checkpointing" else value)
    pipeline = fields(package.classes("components/distributed/pipelining/config.py")["PipelineConfig"], {})
    experts = fields(package.classes(distributed)["MoEParallelizerConfig"], {})
    meta: dict[str, Json] = {"_target_": {}, "_recursive_": {}, "_convert_": {}}
    properties["distributed"] = section(
        {
            "strategy": {"type": "string"}, **sizes, **strategies, "activation_checkpointing": {},
            "pipeline": section(pipeline, "refused"), "moe": section(experts, "refused"), **meta,
        },
        "refused",
    )  # fmt: skip
    properties["teacher_distributed"] = properties["distributed"]
    scheduler = fields(package.classes("components/training/step_scheduler.py")["StepSchedulerConfig"], {})
    runtime: dict[str, Json] = {"local_batch_size": {"type": "integer", "default": 1}, "dp_size": {}, "dataloader": {}}
    properties["step_scheduler"] = section({**scheduler, **runtime, **meta}, "refused")
    for name, path, owner in (
        ("peft", "components/_peft/lora.py", "PeftConfig"),
        ("lr_scheduler", "components/optim/optimizer.py", "LRSchedulerConfig"),
        ("compile", "components/utils/compile_utils.py", "CompileConfig"),
        ("fp8", "components/quantization/fp8.py", "FP8Config"),
    ):
        unknown = "refused" if name in ("peft", "lr_scheduler") else "ignored"
        own = fields(package.classes(path)[owner], {})
        if name == "peft":
            own = {key: value if value.get("type") != ["array", "string"] else {} for key, value in own.items()}
        properties[name] = section({**own, **meta}, unknown)
    properties["quantization"] = section(
        {key: {} for key in ("load_in_4bit", "load_in_8bit", *sorted(bits_and_bytes(package)))}, "ignored"
    )
    return whole("NeMo Automodel recipe", f"nemo_automodel {package.version}", properties, "ignored")


def bits_and_bytes(package: Package) -> set[str]:
    """The keys that `create_bnb_config` reads."""
    tree = package.tree("components/quantization/qlora.py")
    return {key for key in read_keys([tree] if tree else [], ("config",)) if key.isidentifier() and key != "get"}


MAKERS: dict[str, Callable[[Path], Json]] = {"nemo_automodel": nemo_automodel}


def main() -> None:
    """Write the schemas that are named, or all."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    target = Path(__file__).resolve().parent.parent / "schemas"
    for name in sys.argv[2:] or MAKERS:
        value = MAKERS[name](Path(sys.argv[1]))
        (target / f"{name}.json").write_text(dump(value), encoding="utf-8")
        print(f"schemas/{name}.json: {len(value['properties'])} keys of {value['x-upstream']}")


if __name__ == "__main__":
    main()
