"""The keys of axolotl's YAML and of its plugins, from its sdist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from .schema_source import Classes, JsonObject, closed, find_archive, finished, read_archive, version_of

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
    archive = find_archive(folder, "axolotl")
    version = version_of(archive)
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
