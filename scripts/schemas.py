"""Writes `schemas/axolotl.json`, `schemas/deepspeed.json` and `schemas/accelerate.json` from upstream packages.

    python scripts/schemas.py FOLDER [axolotl|deepspeed|accelerate ...]

FOLDER holds what `pip download --no-deps --no-binary :all: axolotl deepspeed` (sdists) and
`pip download --no-deps accelerate` (wheel) leave there. The packages are read with `ast` and never imported, so torch
is not needed. What no class declares (keys read by `dict.get`) is listed here with the place that reads it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from schema_source import Classes, JsonObject, finished, read_archive

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"

ANYTHING: JsonObject = {}
SWITCH: JsonObject = {"type": "boolean"}
COUNT: JsonObject = {"type": "integer"}
NUMBER: JsonObject = {"type": "number"}
TEXT: JsonObject = {"type": "string"}
MAPPING: JsonObject = {"type": "object"}


def closed(properties: JsonObject, treatment: str = "ignored") -> JsonObject:
    """An object whose unknown keys upstream ignores or refuses."""
    return {
        "type": "object",
        "properties": properties,
        "x-unknown-keys": treatment,
        "additionalProperties": treatment != "refused",
    }


def with_default(schema: JsonObject, default: bool) -> JsonObject:
    """A schema with a default."""
    return {**schema, "default": default}


# --- DeepSpeed -------------------------------------------------------------------------------------------------------

DEEPSPEED_SECTIONS = {
    "fp16": "DeepSpeedFP16Config",
    "bf16": "DeepSpeedBF16Config",
    "bfloat16": "DeepSpeedBF16Config",
    "comms_logger": "CommsLoggerConfig",
    "tensorboard": "TensorBoardConfig",
    "wandb": "WandbConfig",
    "csv_monitor": "CSVConfig",
    "comet": "CometConfig",
    "hybrid_engine": "HybridEngineConfig",
    "compile": "CompileConfig",
    "tensor_parallel": "TPTrainingConfig",
}
"""Sections that DeepSpeed reads as a pydantic model (`runtime/config.py: _initialize_params`, `monitor/config.py`)."""

DEEPSPEED_MODULES = (
    "runtime/zero/config.py", "runtime/zero/offload_config.py", "runtime/zero/leaf_module_config.py",
    "runtime/zenflow/zenflow_config.py", "runtime/precision_config.py", "runtime/config.py", "runtime/compile/config.py",
    "compile/config.py", "comm/config.py", "comm/constants.py", "monitor/config.py", "utils/config.py",
    "runtime/tensor_parallel/config.py", "runtime/constants.py",
)  # fmt: skip

DEEPSPEED_READ_BY_HAND: JsonObject = {
    "train_batch_size": COUNT,
    "train_micro_batch_size_per_gpu": COUNT,
    "gradient_accumulation_steps": COUNT,
    "optimizer": closed({"type": TEXT, "params": MAPPING, "legacy_fusion": SWITCH}),
    "scheduler": closed({"type": TEXT, "params": MAPPING}),
    "zero_allow_untested_optimizer": with_default(SWITCH, False),
    "zero_force_ds_cpu_optimizer": with_default(SWITCH, True),
    "data_types": closed(
        {
            "grad_accum_dtype": {"enum": ["fp32", "fp16", "bf16", None]},
            "param_dtype": ANYTHING,
            "buffer_dtype": ANYTHING,
            "keep_in_fp32_modules": ANYTHING,
        }
    ),
    "torch_autocast": closed({"enabled": SWITCH, "dtype": TEXT, "lower_precision_safe_modules": {"type": "array"}}),
    "activation_checkpointing": closed(
        {
            "partition_activations": SWITCH,
            "number_checkpoints": ANYTHING,
            "contiguous_memory_optimization": SWITCH,
            "synchronize_checkpoint_boundary": SWITCH,
            "profile": SWITCH,
            "cpu_checkpointing": SWITCH,
        }
    ),
    "checkpoint": MAPPING,
    "aio": {"type": ["object", "null"]},
    "flops_profiler": MAPPING,
    "data_efficiency": MAPPING,
    "autotuning": MAPPING,
    "pipeline": MAPPING,
    "timers": MAPPING,
    "weight_quantization": MAPPING,
    "expert_parallel": MAPPING,
    "datastates_ckpt": MAPPING,
    "communication_data_type": TEXT,
    "seq_parallel_communication_data_type": TEXT,
    "sequence_parallel_size": COUNT,
    "msamp": MAPPING,
    "allgather_size": NUMBER,
}
"""Keys that `runtime/config.py` and its neighbours read without a model; `msamp` is accelerate's."""


def deepspeed(folder: Path) -> JsonObject:
    """DeepSpeed's JSON config: pydantic sections refuse unknown keys, the top level ignores them."""
    archive = _archive(folder, "deepspeed")
    version = _version(archive)
    sources = read_archive(archive, "deepspeed/")
    wanted = {name: text for name, text in sources.items() if name.removeprefix("deepspeed/") in DEEPSPEED_MODULES}
    classes = Classes(wanted, unknown_keys="refused")
    properties: JsonObject = {"zero_optimization": {"anyOf": [classes.reference("DeepSpeedZeroConfig"), SWITCH]}}
    properties |= {key: classes.reference(name) for key, name in DEEPSPEED_SECTIONS.items()}
    scanned = _scalar_parameters(sources["deepspeed/runtime/config.py"], classes)
    properties |= {key: schema for key, schema in scanned.items() if key not in properties}
    properties |= DEEPSPEED_READ_BY_HAND
    text = sources["deepspeed/runtime/config.py"]
    for key, reason in _removed(text, "_REMOVED_TOP_LEVEL_CONFIG_KEYS").items():
        properties[key] = {"deprecated": True, "x-removed": reason}
    zero = classes.definitions["DeepSpeedZeroConfig"]["properties"]
    for key, reason in _removed(text, "_REMOVED_ZERO_CONFIG_KEYS").items():
        zero[key] = {"deprecated": True, "x-removed": reason}
    return finished(
        closed(properties),
        classes.definitions,
        title="DeepSpeed config",
        x_upstream=f"DeepSpeed {version}",
        x_coercion="pydantic",
        x_placeholder="auto",
    )


def _scalar_parameters(text: str, classes: Classes) -> JsonObject:
    """The keys of every `get_scalar_param(param_dict, KEY, DEFAULT)` on the top level."""
    found: JsonObject = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "get_scalar_param":
            continue
        if getattr(node.args[0], "id", "") != "param_dict" or len(node.args) < 3:
            continue
        key, default = classes.value(node.args[1]), classes.value(node.args[2])
        if isinstance(key, str):
            kinds = {bool: "boolean", int: "number", float: "number", str: "string"}
            kind = kinds.get(type(default))
            found[key] = {"type": kind, "default": default} if kind else {}
    return found


def _removed(text: str, table: str) -> dict[str, str]:
    """Keys that DeepSpeed refuses because the feature is gone, by the table that lists them."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == table:
            assert isinstance(node.value, ast.Dict)
            return {key.value: "removed from DeepSpeed" for key in node.value.keys if isinstance(key, ast.Constant)}
    raise ValueError(f"{table} is not in runtime/config.py")


# --- accelerate ------------------------------------------------------------------------------------------------------

ACCELERATE_SECTIONS = {
    "deepspeed_config": ("DeepSpeed Arguments", ""),
    "fsdp_config": ("FSDP Arguments", "fsdp_"),
    "megatron_lm_config": ("Megatron-LM Arguments", ""),
    "parallelism_config": ("ParallelismConfig Arguments", ""),
    "fp8_config": ("FP8 Arguments", "fp8_"),
}
"""Free dictionaries whose keys `accelerate launch` copies onto its arguments, with the prefix it adds where missing."""

ACCELERATE_OLD = {
    "fp16": {"type": "boolean", "deprecated": True, "x-replacement": "mixed_precision"},
    "dynamo_backend": {"type": "string", "deprecated": True, "x-replacement": "dynamo_config.dynamo_backend"},
}
"""Old keys that `BaseConfig.process_config` still converts."""


def accelerate(folder: Path) -> JsonObject:
    """`accelerate launch --config_file`: unknown top keys are refused, unknown keys of the sections have no effect."""
    archive = _archive(folder, "accelerate")
    version = _version(archive)
    sources = read_archive(archive, "accelerate/commands/")
    config = sources["accelerate/commands/config/config_args.py"]
    classes = Classes({"config": config}, unknown_keys="refused")
    properties = classes.properties("ClusterConfig")
    properties |= {key: value for key, value in classes.properties("SageMakerConfig").items() if key not in properties}
    properties |= ACCELERATE_OLD
    properties["gpu_ids"] = {"type": ["string", "integer", "null"]}
    properties["mixed_precision"] = {"enum": ["no", "fp16", "bf16", "fp8", False, None]}
    groups = _arguments(sources["accelerate/commands/launch.py"])
    for section, (group, prefix) in ACCELERATE_SECTIONS.items():
        keys = dict(groups[group])
        keys |= {key.removeprefix(prefix): value for key, value in groups[group].items() if prefix}
        properties[section] = {"anyOf": [closed(keys), {"type": "null"}]}
    if "backend" not in groups["FP8 Arguments"]:
        properties["fp8_config"]["anyOf"][0]["properties"].update(
            amax_history_length=COUNT, amax_compute_algorithm=TEXT
        )
    properties["deepspeed_config"]["anyOf"][0]["properties"]["deepspeed_config_file"] = {"type": ["string", "null"]}
    return finished(
        closed(properties, "refused"),
        {},
        title="accelerate launch config",
        x_upstream=f"accelerate {version}",
        x_coercion="yaml",
    )


def _arguments(text: str) -> dict[str, JsonObject]:
    """The options of every argument group of a parser by the group's title: {title: {dest: schema}}."""
    tree = ast.parse(text)
    titles: dict[str, str] = {}
    groups: dict[str, JsonObject] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if getattr(node.value.func, "attr", "") == "add_argument_group" and isinstance(node.targets[0], ast.Name):
                title = node.value.args[0]
                assert isinstance(title, ast.Constant)
                titles[node.targets[0].id] = str(title.value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        owner = getattr(getattr(node.func, "value", None), "id", "")
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        if owner in titles and names and str(names[0]).startswith("--"):
            groups.setdefault(titles[owner], {})[str(names[0])[2:].replace("-", "_")] = _option(node)
    return groups


def _option(node: ast.Call) -> JsonObject:
    """One option: its values reach environment variables as text, so only the kind is held against it."""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    kind = getattr(given.get("type"), "id", "")
    types: list[str] = {"int": ["integer", "null"], "float": ["number", "null"]}.get(
        kind, ["string", "boolean", "null"]
    )
    if kind == "str":
        types = ["string", "boolean", "number", "null"]
    schema: JsonObject = {"type": types}
    default = given.get("default")
    if isinstance(default, ast.Constant) and default.value is not None:
        schema["default"] = default.value
    return schema


# --- axolotl ---------------------------------------------------------------------------------------------------------

AXOLOTL_SCHEMAS = "src/axolotl/utils/schemas/"
AXOLOTL_INTEGRATIONS = "src/axolotl/integrations/"

AXOLOTL_REPLACEMENTS = {
    "noisy_embedding_alpha": "neftune_noise_alpha",
    "dpo_beta": "rl_beta",
    "evaluation_strategy": "eval_strategy",
    "eval_table_size": "generate_samples",
    "eval_max_new_tokens": "generation_max_new_tokens",
    "dataset_processes": "dataset_num_proc",
    "gc_steps": "torch_empty_cache_steps",
    "pretrain_multipack_buffer_size": "streaming_multipack_buffer_size",
    "fsdp": "fsdp_config",
    "fsdp_final_state_dict_type": "fsdp_config.final_state_dict_type",
    "sequence_parallel_degree": "context_parallel_size",
    "flash_attn_d512": "large_head_attention",
    "xformers_attention": "attn_implementation",
    "sdp_attention": "attn_implementation",
    "flex_attention": "attn_implementation",
    "flash_attention": "attn_implementation",
    "sage_attention": "attn_implementation",
    "eager_attention": "attn_implementation",
}
"""Old key -> the key that the warnings of `schemas/deprecated.py`, `config.py` and `validation.py` name."""

AXOLOTL_REFUSED = {
    "max_packed_sequence_len", "rope_scaling", "dpo_use_logits_to_keep", "dpo_generate_during_eval", "dpo_norm_loss",
    "rpo_alpha", "s2_attention", "flash_attn_rms_norm",
}  # fmt: skip
"""Keys whose validator in `schemas/deprecated.py` raises."""

AXOLOTL_UNSLOTH = (
    "unsloth_cross_entropy_loss", "unsloth_lora_mlp", "unsloth_lora_qkv", "unsloth_lora_o", "unsloth_rms_norm",
    "unsloth_rope",
)  # fmt: skip
"""Keys that `check_deprecated_unsloth_fields` refuses."""

AXOLOTL_READ_BY_HAND: JsonObject = {
    "beta": {"type": ["number", "null"]},
    "inference": {"type": ["boolean", "null"]},
}
"""Keys without a declared field that validators see before unknown keys are dropped."""


def axolotl(folder: Path) -> JsonObject:
    """axolotl's YAML: unknown keys are dropped without a word; each plugin brings its own."""
    archive = _archive(folder, "axolotl")
    version = _version(archive)
    sources = read_archive(archive, AXOLOTL_SCHEMAS)
    classes = Classes(sources, unknown_keys="ignored")
    properties = classes.properties("AxolotlInputConfig")
    for key, value in AXOLOTL_READ_BY_HAND.items():
        properties.setdefault(key, value)
    for key, replacement in AXOLOTL_REPLACEMENTS.items():
        properties[key] = {**properties[key], "deprecated": True, "x-replacement": replacement}
    for key in AXOLOTL_REFUSED:
        properties[key] = {**properties[key], **_refused("no longer supported")}
    for key in AXOLOTL_UNSLOTH:
        properties[key] = {**_refused("removed"), "x-replacement": "lora_mlp_kernel"}
    properties["fsdp"] = {**properties["fsdp"], "type": ["array", "string", "null"]}
    fsdp = classes.definitions["FSDPConfig"]["properties"]
    prefixed = {
        f"fsdp_{key}": {**value, "deprecated": True, "x-replacement": f"fsdp_config.{key}"}
        for key, value in fsdp.items()
        if not key.startswith("fsdp_")
    }
    fsdp |= {key: value for key, value in prefixed.items() if key != "fsdp_version"}
    plugins = _axolotl_plugins(archive)
    for name, (plugin, own) in sorted(plugins.items()):
        for key, value in own.properties(name).items():
            if key not in properties:
                properties[key] = {**value, "x-plugin": plugin}
        classes.definitions |= own.definitions
    schema = finished(
        closed(properties),
        classes.definitions,
        title="axolotl config",
        x_upstream=f"axolotl {version}",
        x_coercion="pydantic",
    )
    schema["x-plugins"] = sorted({plugin for plugin, _ in plugins.values()})
    return schema


def _refused(reason: str) -> JsonObject:
    """A key whose validator raises when it is set to something true."""
    return {"deprecated": True, "x-removed": reason, "x-harmless": [None, False]}


def _axolotl_plugins(archive: Path) -> dict[str, tuple[str, Classes]]:
    """Argument class -> (the plugin that brings it, its classes), from every `get_input_args` of the integrations."""
    sources = read_archive(archive, AXOLOTL_INTEGRATIONS)
    plugins: dict[str, tuple[str, Classes]] = {}
    for path, text in sources.items():
        for node in ast.parse(text).body if path.endswith(".py") else ():
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if not isinstance(item, ast.FunctionDef) or item.name != "get_input_args":
                    continue
                named = re.search(r'"axolotl\.integrations\.([\w.]+)\.(\w+)"', ast.unparse(item).replace("'", '"'))
                if named:
                    package = path.removeprefix(AXOLOTL_INTEGRATIONS).split("/")[0]
                    folder = f"{AXOLOTL_INTEGRATIONS}{package}/"
                    own = {name: text for name, text in sources.items() if name.startswith(folder)}
                    texts = {name: text for name, text in own.items() if name.endswith(".py")}
                    plugins[named[2]] = (f"axolotl.integrations.{package}.{node.name}", Classes(texts))
    return plugins


# --- command ---------------------------------------------------------------------------------------------------------


def _archive(folder: Path, name: str) -> Path:
    found = sorted(path for path in folder.glob(f"{name}-*") if path.name.endswith((".whl", ".tar.gz")))
    if not found:
        raise SystemExit(f"{folder} holds no archive of {name}")
    return found[-1]


def _version(archive: Path) -> str:
    return archive.name.split("-")[1].removesuffix(".tar.gz")


def written(schema: JsonObject) -> str:
    """JSON with one property a line, so that a new upstream version shows as a short diff."""
    lines: list[str] = []
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            lines.append(f'  "{key}": {{\n{rows}\n  }}')
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


MAKERS = {"axolotl": axolotl, "deepspeed": deepspeed, "accelerate": accelerate}


def main() -> None:
    """Write the schemas that are named, or all."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for name in sys.argv[2:] or MAKERS:
        schema = MAKERS[name](Path(sys.argv[1]))
        (SCHEMAS / f"{name}.json").write_text(written(schema))
        print(f"{name}: {len(schema['properties'])} keys, {schema['x-upstream']}")


if __name__ == "__main__":
    main()
