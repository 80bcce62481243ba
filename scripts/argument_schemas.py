"""Write `schemas/hf_trainer.json`, `llamafactory.json` and `vllm.json` from the upstream packages, read statically.

    pip download --no-deps -d WHEELS transformers==5.23.0 trl==1.16.0 accelerate==1.15.0 llamafactory==0.9.5 ...
    python scripts/argument_schemas.py WHEELS

WHEELS holds a wheel, an sdist or an unpacked folder `name-version` of every package in `PACKAGES`. Nothing is
imported: the argument classes are read with `ast`, so neither torch nor the packages need be installed. Keys that a
package of `FORMER` still has and the present one lacks become removed keys with their replacement.
"""

from __future__ import annotations

import ast
import json
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

PACKAGES = {
    "transformers": "5.23.0", "trl": "1.16.0", "accelerate": "1.15.0", "llamafactory": "0.9.5", "vllm": "0.33.0",
}  # fmt: skip
LLAMAFACTORY_TRANSFORMERS = "5.6.0"
"""The newest transformers that llamafactory 0.9.5 allows (its METADATA: transformers<=5.6.0)."""

FORMER_HF = [("trl", "0.29.0"), ("trl", "0.24.0"), ("trl", "0.16.1"), ("trl", "0.11.4"), ("trl", "0.8.6"),
             ("transformers", "4.57.3"), ("transformers", "4.40.2")]  # fmt: skip
VLLM_REPLACEMENTS = {
    "task": "runner",
    "rope-scaling": "hf-overrides",
    "rope-theta": "hf-overrides",
    "swap-space": "kv-offloading-size",
    "cuda-graph-sizes": "cudagraph-capture-sizes",
    "max-seq-len-to-capture": "max-cudagraph-capture-size",
    "disable-log-requests": "enable-log-requests",
    "guided-decoding-backend": "structured-outputs-config",
    "override-pooler-config": "pooler-config",
    "num-redundant-experts": "eplb-config",
    "speculative-model": "speculative-config",
    "num-speculative-tokens": "speculative-config",
    "speculative-draft-tensor-parallel-size": "speculative-config",
    "worker-use-ray": "distributed-executor-backend",
    "disable-mm-preprocessor-cache": "mm-processor-cache-gb",
}
"""Removed option -> the option that does its work now (deprecation notes in vllm/engine/arg_utils.py 0.6-0.20)."""

FORMER_VLLM = ["0.20.0", "0.11.0", "0.8.5", "0.6.6"]
FORMER_LLAMAFACTORY = [("transformers", "4.57.3"), ("transformers", "4.40.2"), ("llamafactory", "0.9.3")]

REPLACEMENTS = {
    "evaluation_strategy": "eval_strategy",
    "max_seq_length": "max_length",
    "torch_dtype": "dtype",
    "warmup_ratio": "warmup_steps",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "group_by_length": "train_sampling_strategy",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config",
    "fsdp_min_num_params": "fsdp_config",
    "fp16_backend": "fp16",
    "half_precision_backend": "bf16",
    "jit_mode_eval": "torch_compile",
    "use_ipex": "use_cpu",
    "torchdynamo": "torch_compile_backend",
    "dataset_batch_size": "dataset_num_proc",
    "use_num_logits_to_keep": "use_liger_kernel",
    "vllm_device": "vllm_mode",
    "vllm_max_model_len": "vllm_max_model_length",
    "vllm_guided_decoding_regex": "vllm_structured_outputs_regex",
    "wandb_log_unique_prompts": "log_unique_prompts",
    "precompute_ref_eval_batch_size": "precompute_ref_batch_size",
}
"""Removed key -> the key that does its work now (release notes of transformers 4.41-5.0 and trl 0.9-1.0)."""

DEFAULTS = {"default_optim": "adamw_torch_fused"}
"""transformers/training_args.py sets `default_optim` to this for torch >= 2.8."""

TRL_CONFIGS = {
    "SFTConfig": "sft_config", "DPOConfig": "dpo_config", "GRPOConfig": "grpo_config", "KTOConfig": "kto_config",
    "RewardConfig": "reward_config", "RLOOConfig": "rloo_config", "ModelConfig": "model_config",
}  # fmt: skip
FORMER_TRL_CONFIGS = {**TRL_CONFIGS, "ORPOConfig": "orpo_config", "CPOConfig": "cpo_config"}


class Package:
    """The Python sources of one package version, in a wheel, an sdist or a folder."""

    def __init__(self, folder: Path, name: str, version: str) -> None:
        self.name, self.version = name, version
        stem = f"{name}-{version}"
        wheels = sorted(folder.glob(f"{stem}-*.whl"))
        self.folder: Path | None = None
        self.archive: zipfile.ZipFile | tarfile.TarFile | None = None
        if wheels:
            self.archive = zipfile.ZipFile(wheels[0])
        elif (folder / f"{stem}.tar.gz").is_file():
            self.archive = tarfile.open(folder / f"{stem}.tar.gz")  # noqa: SIM115
        elif (folder / stem).is_dir():
            self.folder = folder / stem
        else:
            raise FileNotFoundError(f"{folder} has neither a wheel, an sdist nor a folder of {stem}")

    def text(self, path: str) -> str | None:
        """The text of a source file below the package's root; None where there is none."""
        path = f"{self.name}/{path}"
        if self.folder:
            file = self.folder / path
            return file.read_text(encoding="utf-8") if file.is_file() else None
        try:
            if isinstance(self.archive, zipfile.ZipFile):
                return self.archive.read(path).decode("utf-8")
            assert isinstance(self.archive, tarfile.TarFile)
            member = self.archive.extractfile(f"{self.name}-{self.version}/{path}")
        except KeyError:
            return None
        return member.read().decode("utf-8") if member else None

    @cache  # noqa: B019
    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a source file."""
        text = self.text(path)
        return ast.parse(text) if text is not None else None

    def classes(self, path: str) -> dict[str, ast.ClassDef]:
        """The classes of a source file by name."""
        tree = self.tree(path)
        return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)} if tree else {}


def fields(cls: ast.ClassDef, enums: dict[str, Json]) -> dict[str, Json]:
    """The schema of each annotated field that a parser fills (`init=False` and private ones are none)."""
    out: dict[str, Json] = {}
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        if name.startswith("_") or ast.unparse(node.annotation).startswith("ClassVar"):
            continue
        keywords = {k.arg: k.value for k in node.value.keywords} if isinstance(node.value, ast.Call) else {}
        if isinstance(node.value, ast.Call) and ast.unparse(keywords.get("init", ast.Constant(True))) == "False":
            continue
        schema = annotation(node.annotation, enums)
        value = keywords.get("default") if isinstance(node.value, ast.Call) else node.value
        if isinstance(node.value, ast.Call) and "default_factory" in keywords:
            value = factory_value(keywords["default_factory"])
        if value is not None:
            known, default = literal(value, enums)
            if known:
                schema["default"] = default
        metadata = keywords.get("metadata")
        choices = choices_of(metadata) if isinstance(metadata, ast.Dict) else None
        if choices and "enum" not in schema:
            schema["enum"] = choices + ([None] if "null" in as_list(schema.get("type")) else [])
            schema.pop("type", None)
        out[name] = schema
    return out


def choices_of(metadata: ast.Dict) -> list[Any] | None:
    for key, value in zip(metadata.keys, metadata.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "choices":
            try:
                return list(ast.literal_eval(value))
            except ValueError:
                return None
    return None


def factory_value(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Lambda):
        return node.body
    return {"list": ast.List([], ast.Load()), "dict": ast.Dict([], [])}.get(ast.unparse(node))


def literal(node: ast.expr, enums: dict[str, Json]) -> tuple[bool, Any]:
    """Whether an expression has a value that JSON can say, and the value."""
    if isinstance(node, ast.Name) and node.id in DEFAULTS:
        return True, DEFAULTS[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in enums:
        return True, enums[node.value.id][node.attr]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        (left_known, left), (right_known, right) = literal(node.left, enums), literal(node.right, enums)
        return left_known and right_known, left * right if left_known and right_known else None
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError):
        return False, None
    return True, value


_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "str": "string", "None": "null", "list": "array",
          "List": "array", "tuple": "array", "set": "array", "dict": "object", "Dict": "object"}  # fmt: skip


def annotation(node: ast.expr, enums: dict[str, Json]) -> Json:
    """The JSON Schema of an annotation; {} (anything) for what it does not know.

    A list may be written as one value and a mapping as JSON text or a path: argparse takes both.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return annotation(ast.parse(node.value, mode="eval").body, enums)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union([annotation(node.left, enums), annotation(node.right, enums)])
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value).rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head == "Literal":
            return {"enum": [ast.literal_eval(item) for item in inner]}
        if head == "Optional":
            return union([annotation(inner[0], enums), {"type": "null"}])
        if head == "Union":
            return union([annotation(item, enums) for item in inner])
        if head == "Annotated":
            return annotation(inner[0], enums)
        kind = _TYPES.get(head)
        return {"type": [kind, "string"]} if kind in ("array", "object") else {}
    text = ast.unparse(node).rpartition(".")[2]
    if text in enums:
        return {"enum": list(enums[text].values())}
    kind = _TYPES.get(text)
    if kind in ("array", "object"):
        return {"type": [kind, "string"]}
    return {"type": kind} if kind else {}


def as_list(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [] if value is None else [value]


def union(parts: list[Json]) -> Json:
    if any(not part for part in parts):
        return {}
    enums = [item for part in parts for item in part.get("enum", [])]
    types = list(dict.fromkeys(name for part in parts for name in as_list(part.get("type"))))
    if enums and set(types) <= {"null"}:
        return {"enum": enums + ([None] if types else [])}
    if enums:
        types = list(dict.fromkeys([*types, "string"]))
    return {"type": types[0] if len(types) == 1 else types}


def enum_values(package: Package, path: str) -> dict[str, Json]:
    """The members of every string enum of a file."""
    out: dict[str, Json] = {}
    for name, cls in package.classes(path).items():
        if any("Enum" in ast.unparse(base) for base in cls.bases):
            out[name] = {
                node.targets[0].id: node.value.value
                for node in cls.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant)
            }  # fmt: skip
    return out


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


def add_removed(properties: dict[str, Json], former: dict[str, dict[str, Json]], replacements: dict[str, str]) -> None:
    """Keys that only former versions know. `former` is version -> its keys, newest first."""
    for version, keys in former.items():
        for name, schema in keys.items():
            if name not in properties:
                properties[name] = {
                    "deprecated": True,
                    "x-removed": f"last known to {version}",
                    **({"x-classes": schema["x-classes"]} if "x-classes" in schema else {}),
                    **({"x-replacement": replacements[name]} if replacements.get(name) in properties else {}),
                }


def trl_keys(package: Package, configs: dict[str, str], properties: dict[str, Json]) -> None:
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


def option_names(package: Package, path: str) -> list[str]:
    """The long options of every `add_argument` call of a file, in order, without their dashes."""
    tree = package.tree(path)
    names: list[str] = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names += [
                arg.value[2:]
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and arg.value.startswith("--")
            ]
    return list(dict.fromkeys(names))


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
    launch = {name: {} for name in option_names(accelerate, "commands/launch.py")}
    add(properties, {n: s for n, s in launch.items() if n not in properties}, "accelerate launch")
    former: dict[str, dict[str, Json]] = {}
    for name, version in FORMER_HF:
        package, keys = Package(folder, name, version), {}
        if name == "trl":
            trl_keys(package, FORMER_TRL_CONFIGS, keys)
        else:
            keys = fields(package.classes("training_args.py")["TrainingArguments"], {})
        former[f"{name} {version}"] = keys
    add_removed(properties, former, REPLACEMENTS)
    upstream = f"transformers {transformers.version}, trl {trl.version}"
    return schema("Transformers Trainer and TRL configs", upstream, properties, "refused")


def llamafactory(folder: Path) -> Json:
    """The keys of LLaMA-Factory's YAML for training, inference, evaluation and export."""
    package = Package(folder, "llamafactory", PACKAGES["llamafactory"])
    transformers = Package(folder, "transformers", LLAMAFACTORY_TRANSFORMERS)
    properties: dict[str, Json] = {}
    enums = enum_values(package, "extras/constants.py")
    for module in ("model_args", "data_args", "finetuning_args", "generating_args", "training_args", "evaluation_args"):
        for cls in package.classes(f"hparams/{module}.py").values():
            add(properties, fields(cls, enums))
    add(properties, fields(transformers.classes("training_args.py")["TrainingArguments"], {}))
    add(properties, fields(transformers.classes("training_args_seq2seq.py")["Seq2SeqTrainingArguments"], {}))
    former: dict[str, dict[str, Json]] = {}
    for name, version in FORMER_LLAMAFACTORY:
        older, keys = Package(folder, name, version), {}
        if name == "transformers":
            keys = fields(older.classes("training_args.py")["TrainingArguments"], {})
        else:
            for module in ("model_args", "data_args", "finetuning_args", "training_args"):
                for cls in older.classes(f"hparams/{module}.py").values():
                    keys.update(fields(cls, {}))
        former[f"{name} {version}"] = keys
    add_removed(properties, former, REPLACEMENTS)
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
    add_removed(properties, former, VLLM_REPLACEMENTS)
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
