"""Words that tools take for one key and whose class is in another package than the config's, or only in a validator.

`KEYS` was put together by hand: which sets of words a key takes. The words are read from the tools.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .schema import Json
    from .source import Source

TRAINER: Json = {
    "optim": ["transformers.OptimizerNames", "transformers.former"],
    "lr_scheduler_type": ["transformers.SchedulerType"],
    "eval_strategy": ["transformers.IntervalStrategy"],
    "evaluation_strategy": ["transformers.IntervalStrategy"],
    "save_strategy": ["transformers.SaveStrategy"],
    "logging_strategy": ["transformers.IntervalStrategy"],
    "hub_strategy": ["transformers.HubStrategy"],
}
"""TrainingArguments.__post_init__ makes an enum of each of these, which raises for any other word."""

SERVER: Json = {"dtype": ["vllm.ModelDType"], "kv_cache_dtype": ["vllm.CacheDType"]}

KEYS: Json = {
    "axolotl": {
        "adapter": ["axolotl.adapters"],
        "optimizer": ["transformers.OptimizerNames", "transformers.former", "axolotl.CustomSupportedOptimizers"],
        "lr_scheduler": ["transformers.SchedulerType", "axolotl.schedulers"],
        "eval_strategy": ["transformers.IntervalStrategy"],
        "save_strategy": ["transformers.SaveStrategy"],
        "hub_strategy": ["transformers.HubStrategy"],
        "attn_implementation": ["axolotl.attention"],
        "chat_template": ["axolotl.ChatTemplate"],
        "large_head_attention": ["axolotl.large_head_attention"],
        "image_resize_algorithm": ["axolotl.resampling"],
        "eval_causal_lm_metrics": ["axolotl.metrics"],
        "qat.weight_dtype": ["axolotl.dtypes"],
        "qat.activation_dtype": ["axolotl.dtypes"],
        "quantization.weight_dtype": ["axolotl.dtypes"],
        "quantization.activation_dtype": ["axolotl.dtypes"],
    },
    "hf_trainer": TRAINER,
    "llamafactory": TRAINER,
    "ms_swift": TRAINER,
    "accelerate": {
        "mixed_precision": ["accelerate.PrecisionType"],
        "distributed_type": ["accelerate.DistributedType"],
        "compute_environment": ["accelerate.ComputeEnvironment"],
    },
    "vllm": SERVER | {
        "quantization": ["vllm.QuantizationMethods"],
        "distributed_executor_backend": ["vllm.DistributedExecutorBackend"],
        "load_format": ["vllm.load"],
    },
    "sglang": {
        "dtype": ["vllm.ModelDType"],
        "quantization": ["sglang.QUANTIZATION_CHOICES"],
        "attention_backend": ["sglang.ATTENTION_BACKEND_CHOICES"],
        "load_format": ["sglang.LOAD_FORMAT_CHOICES"],
        "kv_cache_dtype": ["sglang.cache"],
    },
}  # fmt: skip
"""Schema -> top key (a flag with underscores) -> the sets whose union it takes.

The schedulers of axolotl are those of core/trainers/mixins/scheduler.py.
"""

BY_HAND: dict[str, list[str]] = {
    "transformers.former": ["adamw_hf", "adamw_apex_fused", "adamw_torch_npu_fused"],
    "axolotl.adapters": ["lora", "qlora", "llama-adapter", "mora"],
    "axolotl.schedulers": ["one_cycle", "rex"],
    "axolotl.attention": [
        "flash_attention_2", "flash_attention_3", "flash_attention_4", "flash_attention_torch", "flex_attention",
        "sdpa", "eager", "xformers", "sage", "fp8",
    ],
    "axolotl.large_head_attention": ["auto", "sdpa", "triton_flash"],
    "axolotl.resampling": ["bilinear", "bicubic", "lanczos"],
    "axolotl.metrics": ["sacrebleu", "comet", "ter", "chrf", "perplexity"],
    "axolotl.dtypes": ["int4", "int8", "float8_e4m3fn", "fp8", "float8", "nvfp4", "mxfp4", "ternary"],
}  # fmt: skip
"""Optimizers of Transformers 4; adapters of `validate_adapter` in axolotl's schemas/peft.py and of its plugin mora;
words of its schemas/enums.py, config.py, multimodal.py, quantization.py and validation.py (`SUPPORTED_METRICS`)."""

OTHERS = {"axolotl": {"attn_implementation": "/", "chat_template": "tokenizer_default_fallback_"}}
"""Keys that take words besides with this in them: a path of the hub (`org/name`), a template to fall back on."""

FORMER = {
    "axolotl": {"datasets.type": [{"starts": "sharegpt", "instead": "`type: chat_template`", "last": "axolotl 0.4.1"}]},
}
"""Words that a tool took and now stops at, by how they begin; the last release that took them."""

OPEN = {
    "ms_swift": ["optim", "lr_scheduler_type"],
    "vllm": ["quantization", "load_format", "distributed_executor_backend"],
    "sglang": ["quantization", "attention_backend", "load_format"],
}
"""Keys to which plugins and forks add words of their own: there only a misspelt word is known to be wrong."""


def values(transformers: Source, axolotl: Source, accelerate: Source, vllm: Source, sglang: Source) -> Json:
    """The sets of words, and which keys take them."""
    sets: dict[str, list[str]] = dict(BY_HAND)
    for name in ("SchedulerType", "IntervalStrategy", "SaveStrategy", "HubStrategy"):
        sets[f"transformers.{name}"] = _enum(transformers, "trainer_utils.py", name)
    sets["transformers.OptimizerNames"] = _enum(transformers, "training_args.py", "OptimizerNames")
    sets["axolotl.CustomSupportedOptimizers"] = _enum(axolotl, "utils/schemas/enums.py", "CustomSupportedOptimizers")
    sets["axolotl.ChatTemplate"] = _enum(axolotl, "utils/schemas/enums.py", "ChatTemplate")
    for name in ("PrecisionType", "DistributedType", "ComputeEnvironment"):
        sets[f"accelerate.{name}"] = _enum(accelerate, "utils/dataclasses.py", name)
    sets["vllm.ModelDType"] = words(vllm, "config/model.py", "ModelDType")
    sets["vllm.CacheDType"] = words(vllm, "config/cache.py", "CacheDType")
    sets["vllm.DistributedExecutorBackend"] = words(vllm, "config/parallel.py", "DistributedExecutorBackend")
    quantization = "model_executor/layers/quantization/__init__.py"
    sets["vllm.QuantizationMethods"] = words(vllm, quantization, "QuantizationMethods")
    sets["vllm.load"] = words(vllm, "model_executor/model_loader/__init__.py", "LoadFormats")
    for name in ("QUANTIZATION_CHOICES", "ATTENTION_BACKEND_CHOICES", "LOAD_FORMAT_CHOICES"):
        sets[f"sglang.{name}"] = words(sglang, "srt/arg_groups/choices.py", name)
    sets["sglang.cache"] = _choices(sglang, "srt/arg_groups/fields/model.py", "kv_cache_dtype")
    return {"sets": dict(sorted(sets.items())), "keys": KEYS, "open": OPEN, "others": OTHERS, "former": FORMER}


def _enum(source: Source, path: str, name: str) -> list[str]:
    """The values of an enumeration."""
    body = source.classes(path)[name].body
    return _found(path, name, [text for node in body if isinstance(node, ast.Assign) for text in _texts(node.value)])


def words(source: Source, path: str, name: str) -> list[str]:
    """The strings of a `Literal` or a list that a module calls `name`."""
    tree = source.tree(path)
    words = [
        text
        for node in (tree.body if tree else ())
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == name
        for text in _texts(node.value)
    ]
    return _found(path, name, words)


def _choices(source: Source, path: str, name: str) -> list[str]:
    """The strings of `choices=` of one annotated field."""
    for cls in source.classes(path).values():
        for node in ast.walk(cls):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                said = [part for part in ast.walk(node) if isinstance(part, ast.keyword) and part.arg == "choices"]
                return _found(path, name, [text for part in said for text in _texts(part.value)])
    return _found(path, name, [])


def _texts(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _found(path: str, name: str, words: list[str]) -> list[str]:
    if not words:
        raise ValueError(f"{path} lists no words of {name}")
    return list(dict.fromkeys(words))
