"""The keys of axolotl's YAML and of its plugins, from its wheel."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import Json, whole
from .values import words as words_of

if TYPE_CHECKING:
    from .source import Source

INTEGRATIONS = "integrations/"

REPLACEMENTS = {
    "noisy_embedding_alpha": "neftune_noise_alpha",
    "dpo_beta": "rl_beta",
    "evaluation_strategy": "eval_strategy",
    "eval_max_new_tokens": "generation_max_new_tokens",
    "dataset_processes": "dataset_num_proc",
    "gc_steps": "torch_empty_cache_steps",
    "pretrain_multipack_buffer_size": "streaming_multipack_buffer_size",
    "fsdp_final_state_dict_type": "fsdp_config.final_state_dict_type",
    "sequence_parallel_degree": "context_parallel_size",
    "flash_attn_d512": "large_head_attention",
}
"""Old key -> the key that takes its value now, as the warnings of `schemas/deprecated.py` and `validation.py` say."""

INSTEAD = {
    "fsdp": "`fsdp_config` alone turns FSDP on",
    "eval_table_size": "`generate_samples: true` and `num_generation_samples` say it now",
    "rope_scaling": "say it in `overrides_of_model_config`",
    "xformers_attention": "`attn_implementation: xformers` says it now",
    "sdp_attention": "`attn_implementation: sdpa` says it now",
    "flex_attention": "`attn_implementation: flex_attention` says it now",
    "flash_attention": "`attn_implementation: flash_attention_2` says it now",
    "sage_attention": "`attn_implementation: sage` says it now",
    "eager_attention": "`attn_implementation: eager` says it now",
}
"""Old key -> what says it now, where that takes another value."""

REFUSED = {
    "max_packed_sequence_len", "rope_scaling", "dpo_use_logits_to_keep", "dpo_generate_during_eval", "dpo_norm_loss",
    "rpo_alpha", "s2_attention", "flash_attn_rms_norm",
}  # fmt: skip
"""Keys whose validator in `schemas/deprecated.py` raises."""

UNSLOTH_NOW = {
    "unsloth_cross_entropy_loss": "the plugin cut_cross_entropy or liger does it now",
    "unsloth_lora_mlp": "`lora_mlp_kernel` does it now",
    "unsloth_lora_qkv": "`lora_qkv_kernel` does it now",
    "unsloth_lora_o": "`lora_o_kernel` does it now",
    "unsloth_rms_norm": "the plugin liger does it now: `liger_rms_norm`",
    "unsloth_rope": "the plugin liger does it now: `liger_rope`",
}
"""Keys that `check_deprecated_unsloth_fields` refuses -> what does their work now."""

DROPPED = {
    "eval_table_max_new_tokens": (
        "generation_max_new_tokens",
        "read before 0.5, then as `eval_max_new_tokens` (pull 1274)",
    ),
    "relora_steps": ("jagged_restart_steps", "read before 0.12 (pull 1680)"),
    "relora_warmup_steps": ("jagged_restart_warmup_steps", "read before 0.12 (pull 1680)"),
    "relora_anneal_steps": ("jagged_restart_anneal_steps", "read before 0.12 (pull 1680)"),
}
"""Keys of older releases that are dropped without a word -> the key that takes the value now, and since when."""

READ_BY_HAND: Json = {
    "beta": {"type": ["number", "null"]},
    "inference": {"type": ["boolean", "null"]},
}
"""Keys without a declared field that validators see before unknown keys are dropped."""


def axolotl(source: Source) -> Json:
    """axolotl's YAML: unknown keys are dropped without a word; each plugin brings its own."""
    classes = Classes(source.texts(source.below("utils/schemas/")), unknown_keys="ignored")
    properties = classes.properties("AxolotlInputConfig")
    for key, value in READ_BY_HAND.items():
        properties.setdefault(key, value)
    properties["learning_rate"] = {"type": "number"}  # `convert_learning_rate` makes a float of text
    properties["torch_compile_options"] = _compile_options(source)
    for key, replacement in REPLACEMENTS.items():
        properties[key] = {**properties[key], "deprecated": True, "x-replacement": replacement}
    for key, words in INSTEAD.items():
        properties[key] = {**properties[key], "deprecated": True, "x-instead": words}
    for key in REFUSED:
        properties[key] = {**properties[key], **_refused("its validator stops the run")}
    for key in UNSLOTH_NOW:
        properties[key] = {**_refused("its validator stops the run"), "x-instead": UNSLOTH_NOW[key]}
    for key, (replacement, since) in DROPPED.items():
        properties[key] = {"deprecated": True, "x-dropped": since, "x-replacement": replacement}
    properties["fsdp"] = {**properties["fsdp"], "type": ["array", "string", "null"]}
    fsdp = classes.definitions["FSDPConfig"]["properties"]
    prefixed = {
        f"fsdp_{key}": {**value, "deprecated": True, "x-replacement": f"fsdp_config.{key}"}
        for key, value in fsdp.items()
        if not key.startswith("fsdp_")
    }
    fsdp |= {key: value for key, value in prefixed.items() if key != "fsdp_version"}
    plugins = _plugins(source)
    for name, (plugin, own) in sorted(plugins.items()):
        for key, value in own.properties(name).items():
            if key not in properties:
                properties[key] = {**value, "x-plugin": plugin}
        classes.definitions |= own.definitions
    return whole(
        "axolotl config",
        properties,
        "ignored",
        "pydantic",
        definitions=classes.definitions,
        x_plugins=sorted({plugin for plugin, _ in plugins.values()}),
    )


def _compile_options(source: Source) -> Json:
    """The options of Inductor that `validate_torch_compile_options` lets through."""
    allowed = words_of(source, "utils/schemas/enums.py", "INDUCTOR_COMPILE_OPTIONS_ALLOWLIST")
    value = {"type": ["boolean", "integer", "number", "string"]}
    options = {"type": "object", "properties": dict.fromkeys(allowed, value), "x-unknown-keys": "refused"}
    return {"anyOf": [options, {"type": "null"}], "default": None}


def _refused(reason: str) -> Json:
    """A key whose validator raises when it is set to something true."""
    return {"deprecated": True, "x-removed": reason, "x-harmless": [None, False]}


def _plugins(source: Source) -> dict[str, tuple[str, Classes]]:
    """Argument class -> (the plugin that brings it, its classes), from every `get_input_args` of the integrations."""
    plugins: dict[str, tuple[str, Classes]] = {}
    for path in source.below(INTEGRATIONS):
        for node in ast.parse(source.need(path)).body:
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if not isinstance(item, ast.FunctionDef) or item.name != "get_input_args":
                    continue
                named = re.search(r'"axolotl\.integrations\.([\w.]+)\.(\w+)"', ast.unparse(item).replace("'", '"'))
                if named:
                    package = path.removeprefix(INTEGRATIONS).split("/")[0]
                    own = source.texts(source.below(f"{INTEGRATIONS}{package}/"))
                    plugins[named[2]] = (f"axolotl.integrations.{package}.{node.name}", Classes(own))
    return plugins
