"""Write `schemas/hf_trainer.json`, `llamafactory.json` and `vllm.json` from the upstream packages, read statically.

    pip download --no-deps -d WHEELS transformers==5.23.0 trl==1.16.0 accelerate==1.15.0 llamafactory==0.9.5 ...
    python -m scripts.argument_schemas WHEELS

WHEELS holds a wheel, an sdist or an unpacked folder `name-version` of every package in `PACKAGES`. Nothing is
imported: the argument classes are read with `ast`, so neither torch nor the packages need be installed. Keys that a
package of `FORMER` still has and the present one lacks become removed keys with their replacement.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

from scripts.argument_source import Json, Package, annotation, enum_values, fields, literal, option_names, union

PACKAGES = {
    "transformers": "5.23.0", "trl": "1.16.0", "accelerate": "1.15.0", "llamafactory": "0.9.5", "vllm": "0.33.0",
}  # fmt: skip
LLAMAFACTORY_TRANSFORMERS = "5.6.0"
"""The newest transformers that llamafactory 0.9.5 allows (its METADATA: transformers<=5.6.0)."""

REPLACEMENTS = {
    "evaluation_strategy": "eval_strategy",
    "max_seq_length": "max_length",
    "torch_dtype": "dtype",
    "warmup_ratio": "warmup_steps",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "torchdynamo": "torch_compile_backend",
    "use_liger": "use_liger_kernel",
    "vllm_max_model_len": "vllm_max_model_length",
    "vllm_guided_decoding_regex": "vllm_structured_outputs_regex",
    "wandb_log_unique_prompts": "log_unique_prompts",
    "precompute_ref_eval_batch_size": "precompute_ref_batch_size",
    "cuda-graph-sizes": "cudagraph-capture-sizes",
    "override-pooler-config": "pooler-config",
}
"""Removed key -> the key that takes the same value now (release notes of transformers 4.41-5.0, trl 0.9-1.0, vLLM)."""

HINTS = {
    "group_by_length": "`train_sampling_strategy: group_by_length` says it now",
    "adafactor": "`optim: adafactor` says it",
    "fsdp_transformer_layer_cls_to_wrap": "it belongs into `fsdp_config`",
    "fsdp_min_num_params": "it belongs into `fsdp_config`",
    "vllm_device": "`vllm_mode` says where vLLM runs",
    "task": "`runner` and `convert` took its place",
    "rope-scaling": "say it in `hf-overrides`",
    "rope-theta": "say it in `hf-overrides`",
    "disable-log-requests": "requests are logged only with `enable-log-requests`",
    "guided-decoding-backend": "`structured-outputs-config` took its place",
    "num-redundant-experts": "say it in `eplb-config`",
    "speculative-model": "say it in `speculative-config`",
    "num-speculative-tokens": "say it in `speculative-config`",
    "speculative-draft-tensor-parallel-size": "say it in `speculative-config`",
    "worker-use-ray": "`distributed-executor-backend: ray` says it",
}
"""Removed key -> what does its work now, where that takes another value."""

FORMER_HF = [("trl", "0.29.0"), ("trl", "0.24.0"), ("trl", "0.16.1"), ("trl", "0.11.4"), ("trl", "0.8.6"),
             ("transformers", "4.57.3"), ("transformers", "4.40.2")]  # fmt: skip
FORMER_VLLM = ["0.20.0", "0.11.0", "0.8.5", "0.6.6"]
FORMER_LLAMAFACTORY = [
    ("transformers", "4.57.3"), ("transformers", "4.40.2"), ("llamafactory", "0.9.3"), ("llamafactory", "0.9.1"),
    ("llamafactory", "0.8.3"),
]  # fmt: skip

TRL_CONFIGS = {
    "SFTConfig": "sft_config", "DPOConfig": "dpo_config", "GRPOConfig": "grpo_config", "KTOConfig": "kto_config",
    "RewardConfig": "reward_config", "RLOOConfig": "rloo_config", "ModelConfig": "model_config",
}  # fmt: skip
FORMER_TRL_CONFIGS = {**TRL_CONFIGS, "ORPOConfig": "orpo_config", "CPOConfig": "cpo_config"}


def add(properties: dict[str, Json], more: dict[str, Json], owner: str = "") -> None:
    """Merge fields of one class; `x-classes` names the owners, `x-defaults` defaults that differ from the first."""
    for name, schema in more.items():
        have = properties.get(name)
        if have is None:
            properties[name] = {**schema, "x-classes": [owner]} if owner else schema
            continue
        if owner:
            if "x-classes" in have:
                have["x-classes"].append(owner)
            if {k: schema.get(k) for k in ("type", "enum")} != {k: have.get(k) for k in ("type", "enum")}:
                merged = union([{k: part[k] for k in ("type", "enum") if k in part} for part in (have, schema)])
                rest = {k: v for k, v in have.items() if k not in ("type", "enum")}
                have.clear()
                have.update({**merged, **rest})
            if schema.get("default") != have.get("default"):
                have.setdefault("x-defaults", {})[owner] = schema.get("default")


def add_removed(properties: dict[str, Json], former: dict[str, dict[str, Json]]) -> None:
    """Keys that only former versions know. `former` is version -> its keys, newest first."""
    for version, keys in former.items():
        for name, schema in keys.items():
            if name not in properties:
                properties[name] = {
                    "deprecated": True,
                    "x-removed": f"last known to {version}" + (f"; {HINTS[name]}" if name in HINTS else ""),
                    **({"x-classes": schema["x-classes"]} if "x-classes" in schema else {}),
                    **({"x-replacement": REPLACEMENTS[name]} if REPLACEMENTS.get(name) in properties else {}),
                }


def trl_keys(package: Package, configs: dict[str, str], properties: dict[str, Json]) -> None:
    """The keys of TRL's trainer configs, `ModelConfig` and the arguments of its scripts."""
    add_shared = package.classes("trainer/base_config.py").get("_BaseConfig")
    for owner, module in configs.items():
        classes = package.classes(f"trainer/{module}.py")
        if owner not in classes:
            continue
        if add_shared and owner != "ModelConfig":
            add(properties, fields(add_shared, {}), owner)
        add(properties, fields(classes[owner], {}), owner)
    for owner in ("ScriptArguments", "DatasetMixtureConfig"):
        for path in ("scripts/utils.py", "utils.py"):
            if owner in package.classes(path):
                add(properties, fields(package.classes(path)[owner], {}), owner)


def hf_trainer(folder: Path) -> Json:
    """The keys of a TRL `--config` YAML and of a TrainingArguments YAML or JSON."""
    transformers, trl, accelerate = (Package(folder, n, PACKAGES[n]) for n in ("transformers", "trl", "accelerate"))
    properties: dict[str, Json] = {}
    add(properties, fields(transformers.classes("training_args.py")["TrainingArguments"], {}))
    trl_keys(trl, TRL_CONFIGS, properties)
    dpo = trl.tree("scripts/grpo.py")
    for node in ast.walk(dpo) if dpo else ():
        if isinstance(node, ast.ClassDef) and node.name == "GRPOScriptArguments":
            add(properties, fields(node, {}), "GRPOScriptArguments")
    properties["env"] = {"type": "object", "x-classes": ["TrlParser"]}
    properties["accelerate_config"] = {"type": "string", "x-classes": ["trl CLI"]}
    launch: dict[str, Json] = {name: {} for name in option_names(accelerate, "commands/launch.py")}
    add(properties, {n: s for n, s in launch.items() if n not in properties}, "accelerate launch")
    former: dict[str, dict[str, Json]] = {}
    for name, version in FORMER_HF:
        package = Package(folder, name, version)
        keys: dict[str, Json] = {}
        if name == "trl":
            trl_keys(package, FORMER_TRL_CONFIGS, keys)
        else:
            keys = fields(package.classes("training_args.py")["TrainingArguments"], {})
        former[f"{name} {version}"] = keys
    add_removed(properties, former)
    upstream = f"transformers {transformers.version}, trl {trl.version}"
    return schema("Transformers Trainer and TRL configs", upstream, properties, "refused")


def llamafactory(folder: Path) -> Json:
    """The keys of LLaMA-Factory's YAML for training, inference, evaluation and export."""
    package = Package(folder, "llamafactory", PACKAGES["llamafactory"])
    transformers = Package(folder, "transformers", LLAMAFACTORY_TRANSFORMERS)
    properties: dict[str, Json] = {}
    enums = enum_values(package, "extras/constants.py")
    modules = ("model_args", "data_args", "finetuning_args", "generating_args", "training_args", "evaluation_args")
    for module in modules:
        for cls in package.classes(f"hparams/{module}.py").values():
            add(properties, fields(cls, enums))
    add(properties, fields(transformers.classes("training_args.py")["TrainingArguments"], {}))
    add(properties, fields(transformers.classes("training_args_seq2seq.py")["Seq2SeqTrainingArguments"], {}))
    former: dict[str, dict[str, Json]] = {}
    for name, version in FORMER_LLAMAFACTORY:
        older = Package(folder, name, version)
        keys: dict[str, Json] = {}
        if name == "transformers":
            keys = fields(older.classes("training_args.py")["TrainingArguments"], {})
        else:
            for module in ("model_args", "data_args", "finetuning_args", "training_args"):
                for cls in older.classes(f"hparams/{module}.py").values():
                    keys.update(fields(cls, {}))
        former[f"{name} {version}"] = keys
    add_removed(properties, former)
    return schema("LLaMA-Factory", f"llamafactory {package.version}", properties, "refused")


def vllm(folder: Path) -> Json:
    """The keys of `vllm serve --config`: every long option, as it is spelled on the command line."""
    package = Package(folder, "vllm", PACKAGES["vllm"])
    types: dict[str, Json] = {}
    for path, name in (
        ("engine/arg_utils.py", "EngineArgs"),
        ("engine/arg_utils.py", "AsyncEngineArgs"),
        ("entrypoints/common/cli_args.py", "BaseFrontendArgs"),
        ("entrypoints/common/cli_args.py", "FrontendArgs"),
    ):
        types.update(fields(package.classes(path)[name], {}))
    types.update(config_defaults(package, types))
    names = [
        *option_names(package, "engine/arg_utils.py"),
        *option_names(package, "entrypoints/common/cli_args.py"),
        *(name.replace("_", "-") for name in types),
    ]
    properties = {name: types.get(name.replace("-", "_"), {}) for name in dict.fromkeys(names)}
    for name in ("max-model-len", "max-num-batched-tokens", "kv-cache-memory-bytes"):
        properties[name] = {**properties[name], "type": ["integer", "string"]}
    former: dict[str, dict[str, Json]] = {}
    for version in FORMER_VLLM:
        older = Package(folder, "vllm", version)
        paths = ("engine/arg_utils.py", "entrypoints/openai/cli_args.py", "entrypoints/common/cli_args.py")
        options = [name for path in paths for name in option_names(older, path)]
        former[f"vllm {version}"] = {name.replace("_", "-"): {} for name in options}
    add_removed(properties, former)
    return schema("vLLM --config", f"vllm {package.version}", properties, "refused")


def config_defaults(package: Package, engine: dict[str, Json]) -> dict[str, Json]:
    """The types and defaults that `EngineArgs` takes from the config classes (`dtype: ... = ModelConfig.dtype`)."""
    tree = package.tree("engine/arg_utils.py")
    cls = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "EngineArgs") if tree else None
    out: dict[str, Json] = {}
    for node in cls.body if cls else ():
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = node.value
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            found = config_field(package, value.value.id, value.attr)
            if found:
                out[node.target.id] = {**found, **engine.get(node.target.id, {})}
    return out


def config_field(package: Package, cls: str, name: str) -> Json:
    """The type and default of a field of one of vLLM's config classes."""
    for module in ("model", "cache", "parallel", "scheduler", "lora", "load", "multimodal", "compilation", "offload",
                   "observability", "kernel"):  # fmt: skip
        found = package.classes(f"config/{module}.py").get(cls)
        for node in found.body if found else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                schema = annotation(node.annotation, {})
                value: ast.expr | None = node.value
                if isinstance(value, ast.Call):
                    value = next((k.value for k in value.keywords if k.arg == "default"), None)
                known, default = literal(value, {}) if value is not None else (False, None)
                return {**schema, "default": default} if known else schema
    return {}


def schema(title: str, upstream: str, properties: dict[str, Json], unknown: str) -> Json:
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


def dump(value: Json) -> str:
    """The schema as JSON with one property a line."""
    head = {key: item for key, item in value.items() if key != "properties"}
    lines = [f"  {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in head.items()]
    rows = [
        f"    {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in value["properties"].items()
    ]
    return "{\n" + ",\n".join(lines) + ',\n  "properties": {\n' + ",\n".join(rows) + "\n  }\n}\n"


def main(folder: Path) -> None:
    """Write the three schemas."""
    target = Path(__file__).resolve().parent.parent / "schemas"
    for name, build in (("hf_trainer", hf_trainer), ("llamafactory", llamafactory), ("vllm", vllm)):
        value = build(folder)
        (target / f"{name}.json").write_text(dump(value), encoding="utf-8")
        print(f"schemas/{name}.json: {len(value['properties'])} keys of {value['x-upstream']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
