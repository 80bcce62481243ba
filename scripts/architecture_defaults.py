"""Class defaults that no tensor depends on, but that say how long a model's window is or what it activates with."""

from __future__ import annotations

import contextlib
from typing import Any

from gpulint.models.expression import compile_expression

from . import architecture_trace
from .architecture_parts import config_class

Table = dict[str, Any]

DESCRIPTIVE = (
    "max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "model_max_length", "max_source_positions",
    "hidden_act", "hidden_activation", "activation_function", "activation", "feed_forward_proj", "mlp_hidden_act",
    "sliding_window", "use_sliding_window", "max_window_layers", "attention_chunk_size", "num_experts_per_tok",
    "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts", "moe_top_k", "final_logit_softcapping",
    "attn_logit_softcapping", "index_head_dim", "mamba_ssm_dtype", "kv_lora_rank", "q_lora_rank",
    "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "head_dim", "num_kv_shared_layers", "ssm_state_size",
    "activation_sparsity_pattern",
    "mamba_d_state", "state_size", "mamba_head_dim", "mamba_d_head", "mamba_headdim", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_num_heads", "linear_head_dim", "num_attention_heads",
    "num_key_value_heads", "conv_kernel", "attention_types", "n_head", "n_heads", "num_heads",
    "decoder_attention_heads", "attention_window_size", "attention_heads",
)  # fmt: skip
"""Fields that Shape reads though no tensor may depend on them: their class defaults belong in every table."""


def describe(table: Table, base: Table, recipe: Table) -> None:
    """Add the class defaults of the DESCRIPTIVE fields, the kind of norm, and the schedule of `layer_types`."""
    model_type = table["model_type"].partition(":")[0]
    try:
        made = config_class(model_type)(**base)
    except Exception as error:
        print(f"   no class default: {type(error).__name__}")
        return
    with contextlib.suppress(Exception):
        auto_class = table.get("auto_class", "CausalLM")
        config = {**base, **recipe.get("config", {}), "model_type": model_type}
        table["norm"] = architecture_trace.norm_kind(config, auto_class)
    known = {*table.get("derive", {}), *table.get("let", {})}
    defaults = table.setdefault("defaults", {})
    for name in DESCRIPTIVE:
        value = vars(made).get(name)
        if value is not None and name not in defaults and name not in known:
            defaults[name] = value
    types = vars(made).get("layer_types")
    if isinstance(types, list) and "layer_types" not in known and "layer_types" not in defaults:
        rules = (f"{index}%{period}!=0" for period in range(2, 13) for index in ("(i+1)", "i"))
        found = next((rule for rule in rules if types == _scheduled(len(types), rule)), None)
        if found:
            items = [[found, "sliding_attention"], ["True", "full_attention"]]
            table.setdefault("derive", {})["layer_types"] = {"list": {"len": "num_hidden_layers", "items": items}}
        elif len(set(types)) > 1:
            print(f"   {table['model_type']}: layer types without a rule: {types[:12]}")


def _scheduled(length: int, rule: str) -> list[str]:
    compiled = compile_expression(rule)
    return ["sliding_attention" if compiled(lambda _: None, i, length) else "full_attention" for i in range(length)]
