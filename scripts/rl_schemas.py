"""Write the schemas of training tools around Hugging Face models from their repositories, read statically.

    python -m scripts.rl_schemas FOLDER [nemo_automodel ...]

FOLDER holds an unpacked source tree `name-version` of every package in `PACKAGES` (`git archive` of its release).
Nothing is imported: classes and the keys that code reads by name are found with `ast`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from scripts.argument_schemas import dump
from scripts.argument_source import Json, Package, as_list, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PACKAGES = {
    "nemo_automodel": "0.5.0",
    "nemo_rl": "0.6.0",
    "oumi": "0.8",
    "verl": "0.10.0.dev",
    "h2o_llmstudio": "1.14.9",
    "ms_swift": "4.6.0.dev0",
}


SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


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


def typed(package: Package, paths: Iterable[str], unknown: str) -> Callable[[str], dict[str, Json]]:
    """A reader of TypedDicts and pydantic models by name, nested ones as sections."""
    classes: dict[str, ast.ClassDef] = {}
    for path in paths:
        classes |= package.classes(path)

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


NEMO_RL_ROOT = (
    "algorithms/grpo.py", "algorithms/sft.py", "algorithms/dpo.py", "algorithms/rm.py", "algorithms/ppo.py",
    "algorithms/distillation.py",
)  # fmt: skip


def nemo_rl(folder: Path) -> Json:
    """The sections `policy` and `cluster` from their TypedDicts, which nobody checks; the others are left alone."""
    package = Package(folder, "nemo_rl", PACKAGES["nemo_rl"])
    root = folder / f"nemo_rl-{PACKAGES['nemo_rl']}"
    modules = (
        "models/policy/__init__.py", "models/generation/interfaces.py", "models/generation/vllm/config.py",
        "distributed/virtual_cluster.py",
    )  # fmt: skip
    read = typed(package, modules, "ignored")
    policy = read("PolicyConfig")
    policy["dtensor_cfg"]["properties"]["automodel_kwargs"] = {}  # passed on to Automodel as it is
    engine = read("VllmSpecificArgs")
    generation = policy.get("generation", section({}))
    names = string_keys(path for path in sorted((root / "nemo_rl").rglob("*.py")))
    used = {key for path in sorted((root / "examples").rglob("*.yaml")) for key in yaml_keys(path)}
    generation["properties"] |= {"vllm_cfg": section(engine, "ignored")}
    policy["generation"] = generation
    top = {key.partition(".")[0]: {} for key in used}
    for key in sorted(used):
        parts = key.split(".")
        if parts[0] == "policy":
            allow(policy, parts[1:], names)
    properties: dict[str, Json] = {**{name: {} for name in sorted(top)}, "policy": section(policy, "ignored")}
    properties["cluster"] = section(read("ClusterConfig"), "ignored")
    return whole("NeMo RL config", f"nemo_rl {package.version}", properties, "ignored")


def string_keys(paths: Iterable[Path]) -> set[str]:
    """Every string that some code holds: keys that are read by name."""
    return {
        node.value
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def yaml_keys(path: Path, prefix: str = "") -> set[str]:
    """The dotted keys of a YAML file."""
    found: set[str] = set()

    def walk(value: object, prefix: str) -> None:
        for key, item in value.items() if isinstance(value, dict) else ():
            found.add(f"{prefix}{key}")
            walk(item, f"{prefix}{key}.")

    walk(yaml.safe_load(path.read_text()), prefix)
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


def shipped(folder: Path, name: str, place: str, keep: Callable[[str], bool]) -> Json:
    """The configs below `place` of a source tree, with the keys that `keep` wants."""
    root = folder / f"{name}-{PACKAGES[name]}"

    def kept(value: object, prefix: str) -> object:
        if not isinstance(value, dict):
            return value
        parts = {key: kept(item, f"{prefix}{key}.") for key, item in value.items() if keep(f"{prefix}{key}")}
        return {key: item for key, item in parts.items() if item != {}}

    files: dict[str, Any] = {}
    for path in sorted((root / place).rglob("*.yaml")):
        value = yaml.safe_load(path.read_text())
        if isinstance(value, dict):
            files[path.relative_to(root).as_posix()] = kept(value, "")
    parents = {
        os.path.normpath(os.path.join(os.path.dirname(path), name))
        for path, value in files.items()
        for name in as_list(value.get("defaults"))
    }
    files = {path: value for path, value in files.items() if path in parents}
    return {"upstream": f"{name} {PACKAGES[name]}", "files": files}


_NEMO_RL_KEEP = re.compile(
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


def nemo_rl_shipped(folder: Path) -> Json:
    """The configs of `examples/`, from which others inherit."""
    return shipped(folder, "nemo_rl", "examples", lambda key: _NEMO_RL_KEEP.match(key) is not None)


def oumi(folder: Path) -> Json:
    """The dataclasses of `core/configs`; OmegaConf merges a file into them and refuses what they lack."""
    root = folder / f"oumi-{PACKAGES['oumi']}" / "src" / "oumi" / "core" / "configs"
    classes: dict[str, ast.ClassDef] = {}
    enums: dict[str, Json] = {}
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name] = node

    def properties(name: str) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for base in classes[name].bases:
            if ast.unparse(base).rpartition(".")[2] in classes:
                out |= properties(ast.unparse(base).rpartition(".")[2])
        own = fields(classes[name], enums)
        for node in classes[name].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in own:
                kinds = [kind for kind in re.findall(r"\w+", ast.unparse(node.annotation)) if kind in classes]
                many = re.search(r"(?i)\b(list|dict)\[", ast.unparse(node.annotation))
                bases = [ast.unparse(base) for kind in kinds for base in classes[kind].bases]
                if kinds and not many and not any("Enum" in base for base in bases):
                    own[node.target.id] = section(properties(kinds[0]), "refused")
                elif kinds or own[node.target.id].get("type") in (["array", "string"], ["object", "string"]):
                    own[node.target.id] = {}
        return out | own

    merged: dict[str, Json] = {}
    for name in ("TrainingConfig", "InferenceConfig", "EvaluationConfig"):
        merged |= {key: value for key, value in properties(name).items() if key not in merged}
    return whole("Oumi config", f"oumi {PACKAGES['oumi']}", merged, "refused")


_VERL = {"ppo_trainer": "_generated_ppo_trainer", "ppo_megatron_trainer": "_generated_ppo_megatron_trainer"}
"""verl's trainer configs and the files that hold them put together."""

_VERL_OPEN = re.compile(r"override\w*|\w*_kwargs|extra|custom\w*|turbo_config|deepspeed|ray_kwargs|hydra|defaults")


def verl_configs(folder: Path) -> dict[str, Any]:
    """Every config that verl ships, by name."""
    root = folder / f"verl-{PACKAGES['verl']}" / "verl"
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted(root.rglob("config/*.yaml"))}


def verl(folder: Path) -> Json:
    """The keys of verl's configs put together, and of those that build on them."""

    def properties(values: list[Any]) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for key in dict.fromkeys(key for value in values for key in value):
            inner = [value[key] for value in values if isinstance(value.get(key), dict)]
            is_open = _VERL_OPEN.fullmatch(key) is not None or any(not value for value in inner)
            if inner and not is_open:
                out[key] = section(properties(inner), "ignored")
            else:
                scalars = {type(value[key]) for value in values if key in value}
                kind = {int: "integer", float: "number"}.get(next(iter(scalars))) if len(scalars) == 1 else None
                out[key] = {"type": "number"} if kind and not is_open else {}
        return out

    configs = [value for value in verl_configs(folder).values() if isinstance(value, dict)]
    whole_ones = [value for value in configs if "actor_rollout_ref" in value]
    return whole("verl config", f"verl {PACKAGES['verl']}", properties(whole_ones), "ignored")


_VERL_KEEP = re.compile(
    r"(actor_rollout_ref|critic|reward|algorithm|trainer|data)$|trainer\.(nnodes|n_gpus_per_node)"
    r"|data\.max_\w+|algorithm\.(adv_estimator|use_kl_in_reward)|actor_rollout_ref\.(actor|ref|rollout|model)$"
    r"|actor_rollout_ref\.actor\.(strategy|ppo_\w+|use_dynamic_bsz|use_kl_loss|ulysses\w+|fsdp_config|megatron|optim)$"
    r"|actor_rollout_ref\.actor\.(optim\.optimizer|fsdp_config\.(\w*offload\w*|reshard\w+|fsdp_size|forward_prefetch"
    r"|model_dtype|use_orig_params|dtype)|megatron\.(\w*offload|\w*parallel\w*|use_distributed_optimizer|dtype"
    r"|override_transformer_config.*))$|actor_rollout_ref\.ref\.(fsdp_config|megatron)(\.param_offload)?$"
    r"|actor_rollout_ref\.rollout\.(gpu_memory_utilization|free_cache_engine|n|nnodes|tensor_model_parallel_size)$"
    r"|actor_rollout_ref\.model\.(enable_\w+|use_\w+|lora_rank|lora_alpha|target_modules|path|lora|lora\.rank)$"
    r"|critic\.(enable|fsdp|megatron|fsdp_config|fsdp\.\w*offload|megatron\.\w*offload)$"
    r"|reward\.reward_model(\.(enable|model_path))?$"
)


def verl_shipped(folder: Path) -> Json:
    """The trainer configs, with the keys that decide memory."""

    def kept(value: object, prefix: str) -> object:
        if not isinstance(value, dict):
            return value
        return {key: kept(item, f"{prefix}{key}.") for key, item in value.items() if _VERL_KEEP.match(prefix + key)}

    configs = verl_configs(folder)
    files = {f"verl/trainer/config/{name}.yaml": kept(configs[place], "") for name, place in _VERL.items()}
    return {"upstream": f"verl {PACKAGES['verl']}", "files": files}


def h2o_llmstudio(folder: Path) -> Json:
    """The config dataclasses of every problem type; a YAML file's other keys are dropped (`config_utils.py`)."""
    root = folder / f"h2o_llmstudio-{PACKAGES['h2o_llmstudio']}" / "llm_studio" / "python_configs"
    classes: dict[str, ast.ClassDef] = {}
    for path in sorted(root.glob("text_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes[f"{path.stem}.{node.name}"] = node
    sections: dict[str, dict[str, Json]] = {}
    top: dict[str, Json] = {"problem_type": {"type": "string"}}
    for name, node in classes.items():
        if not name.endswith(".ConfigProblemBase"):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                kind = ast.unparse(field.annotation)
                held = [cls for key, cls in classes.items() if key.endswith(f".{kind}")]
                if not held:
                    top[field.target.id] = {}
                    continue
                for cls in held:
                    own = {key: closed(value) for key, value in fields(cls, {}).items()}
                    merged = sections.setdefault(field.target.id, {})
                    merged |= {key: value for key, value in own.items() if key not in merged}
    top |= {name: section(own, "ignored") for name, own in sections.items()}
    return whole("H2O LLM Studio experiment", f"h2o_llmstudio {PACKAGES['h2o_llmstudio']}", top, "ignored")


def closed(value: Json) -> Json:
    """Only the kind of numbers and switches is checked; lists and strings stand for each other in its files."""
    return value if value.get("type") in ("integer", "number", "boolean") else {}


SWIFT = (
    "arguments/base_args", "arguments/sft_args.py", "arguments/pretrain_args.py", "arguments/rlhf_args.py",
    "arguments/tuner_args.py", "trainers/arguments.py", "rlhf_trainers/args_mixin.py", "rlhf_trainers/arguments.py",
)  # fmt: skip


def ms_swift(folder: Path) -> Json:
    """The argument classes of training; those of the Transformers Trainer are as `hf_trainer.json` has them."""
    root = folder / f"ms_swift-{PACKAGES['ms_swift']}" / "swift"
    properties: dict[str, Json] = {}
    for place in SWIFT:
        path = root / place
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    for key, value in fields(node, {}).items():
                        properties.setdefault(key, closed(value))
    trainer = json.loads((SCHEMAS / "hf_trainer.json").read_text())["properties"]
    for key, value in trainer.items():
        if "x-removed" not in value:
            properties.setdefault(key, {} if "x-classes" in value else closed(value))
    for former, now in (("train_type", "tuner_type"), ("sft_type", "tuner_type"), ("model_id_or_path", "model")):
        properties[former] = {"deprecated": True, "x-replacement": now}
    return whole("ms-swift arguments", f"ms-swift {PACKAGES['ms_swift']}", properties, "refused")


def ms_swift_shipped(folder: Path) -> Json:
    """The DeepSpeed configs that have short names."""
    root = folder / f"ms_swift-{PACKAGES['ms_swift']}" / "swift" / "config"
    files = {path.stem: json.loads(path.read_text()) for path in sorted(root.glob("zero*.json"))}
    return {"upstream": f"ms-swift {PACKAGES['ms_swift']}", "files": files}


SHIPPED: dict[str, Callable[[Path], Json]] = {
    "nemo_rl": nemo_rl_shipped,
    "verl": verl_shipped,
    "ms_swift": ms_swift_shipped,
}

MAKERS: dict[str, Callable[[Path], Json]] = {
    "nemo_automodel": nemo_automodel,
    "nemo_rl": nemo_rl,
    "oumi": oumi,
    "verl": verl,
    "h2o_llmstudio": h2o_llmstudio,
    "ms_swift": ms_swift,
}


def main() -> None:
    """Write the schemas that are named, or all."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    target = SCHEMAS
    for name in sys.argv[2:] or MAKERS:
        value = MAKERS[name](Path(sys.argv[1]))
        (target / f"{name}.json").write_text(dump(value), encoding="utf-8")
        print(f"schemas/{name}.json: {len(value['properties'])} keys of {value['x-upstream']}")
        if name in SHIPPED:
            facts = SHIPPED[name](Path(sys.argv[1]))
            rows = ",\n".join(f"  {json.dumps(path)}: {json.dumps(item)}" for path, item in facts["files"].items())
            head = f'{{"upstream": {json.dumps(facts["upstream"])}, "files": {{\n'
            place = target.parent / "linter" / "formats" / f"{name}_shipped.json"
            place.write_text(f"{head}{rows}\n}}}}\n", encoding="utf-8")
            print(f"{place.name}: {len(facts['files'])} files")


if __name__ == "__main__":
    main()
