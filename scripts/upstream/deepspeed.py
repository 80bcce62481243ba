"""The keys of DeepSpeed's JSON config, from its sdist."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import ANYTHING, COUNT, MAPPING, NUMBER, SWITCH, TEXT, Json, section, whole

if TYPE_CHECKING:
    from .source import Source

SECTIONS = {
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

MODULES = (
    "runtime/zero/config.py", "runtime/zero/offload_config.py", "runtime/zero/leaf_module_config.py",
    "runtime/zenflow/zenflow_config.py", "runtime/precision_config.py", "runtime/config.py",
    "runtime/compile/config.py",
    "compile/config.py", "comm/config.py", "comm/constants.py", "monitor/config.py", "utils/config.py",
    "runtime/tensor_parallel/config.py", "runtime/constants.py",
)  # fmt: skip


def _ignoring(properties: Json) -> Json:
    return section(properties, "ignored")


READ_BY_HAND: Json = {
    "train_batch_size": COUNT,
    "train_micro_batch_size_per_gpu": COUNT,
    "gradient_accumulation_steps": COUNT,
    "optimizer": _ignoring({"type": TEXT, "params": MAPPING, "legacy_fusion": SWITCH}),
    "scheduler": _ignoring({"type": TEXT, "params": MAPPING}),
    "zero_allow_untested_optimizer": {**SWITCH, "default": False},
    "zero_force_ds_cpu_optimizer": {**SWITCH, "default": True},
    "data_types": _ignoring(
        {
            "grad_accum_dtype": {"enum": ["fp32", "fp16", "bf16", None]},
            "param_dtype": ANYTHING,
            "buffer_dtype": ANYTHING,
            "keep_in_fp32_modules": ANYTHING,
        }
    ),
    "torch_autocast": _ignoring({"enabled": SWITCH, "dtype": TEXT, "lower_precision_safe_modules": {"type": "array"}}),
    "activation_checkpointing": _ignoring(
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


DROPPED = dict.fromkeys(
    (
        "nebula", "compression_training", "quantize_training", "sparse_attention", "mics_shard_size",
        "mics_hierarchical_params_gather",
    ),
    "0.19.7",
)  # fmt: skip
"""Removed keys -> the release that dropped them: 0.19.8 dropped the others of its tables (sdists)."""


def deepspeed(source: Source) -> Json:
    """DeepSpeed's JSON config: pydantic sections refuse unknown keys, the top level ignores them."""
    classes = Classes(source.texts(path for path in source.paths if path in MODULES), unknown_keys="refused")
    text = source.need("runtime/config.py")
    properties: Json = {"zero_optimization": {"anyOf": [classes.reference("DeepSpeedZeroConfig"), SWITCH]}}
    properties |= {key: classes.reference(name) for key, name in SECTIONS.items()}
    scanned = _scalar_parameters(text, classes)
    properties |= {key: schema for key, schema in scanned.items() if key not in properties}
    properties |= READ_BY_HAND
    for key, reason in _removed(text, "_REMOVED_TOP_LEVEL_CONFIG_KEYS").items():
        properties[key] = {"deprecated": True, "x-removed": reason}
    zero = classes.definitions["DeepSpeedZeroConfig"]["properties"]
    for key, reason in _removed(text, "_REMOVED_ZERO_CONFIG_KEYS").items():
        zero[key] = {"deprecated": True, "x-removed": reason}
    made = whole("DeepSpeed config", properties, "ignored", "pydantic", definitions=classes.definitions)
    return {**made, "x-placeholder": "auto"}


def _scalar_parameters(text: str, classes: Classes) -> Json:
    """The keys of every `get_scalar_param(param_dict, KEY, DEFAULT)` on the top level."""
    found: Json = {}
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
            keys = [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
            return {key: f"taken before DeepSpeed {DROPPED.get(key, '0.19.8')}" for key in keys}
    raise ValueError(f"{table} is not in runtime/config.py")
