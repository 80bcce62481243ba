"""PROVISIONAL: dimensions of the decoder (the owner of this room replaces this file)."""

from __future__ import annotations

from typing import Any

from .fields import Fields
from .model import Shape, Tensor


def shape_of(fields: Fields, tensors: tuple[Tensor, ...], config: dict[str, Any]) -> Shape:
    """Dimensions from common field names."""
    first = fields.first
    hidden = first("hidden_size", "n_embd", "d_model", "dim") or 0
    layers = first("num_hidden_layers", "n_layer", "num_layers", "n_layers") or 0
    heads = first("num_attention_heads", "n_head", "num_heads", "n_heads") or 0
    kv = first("num_key_value_heads") or (1 if first("multi_query") else heads)
    head_dim = first("head_dim") or (hidden // heads if heads else 0)
    inter = first("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size") or 4 * hidden
    window = first("sliding_window") if first("use_sliding_window") is not False else None
    types = first("layer_types") or ["full_attention"] * layers
    rope, nope = first("qk_rope_head_dim") or 0, first("qk_nope_head_dim") or 0
    lora = first("kv_lora_rank") or 0
    v_dim = first("v_head_dim") or head_dim
    roles = {t.role for t in tensors}
    experts = first("num_local_experts", "num_experts", "n_routed_experts") or 0
    sparse = sorted({i for t in tensors if t.role == "router" and t.layers for i in t.layers})
    windows = tuple(window if (first("layer_types") is None or kind == "sliding_attention") else None for kind in types)
    elements = (lora + rope) if lora else kv * (head_dim + v_dim)
    return Shape(
        hidden, layers, heads, kv, head_dim, v_dim, inter, first("vocab_size") or 0,
        bool(first("tie_word_embeddings")), "layer" if first("layer_norm_epsilon", "layer_norm_eps") else "rms",
        "gated" if roles & {"gate", "gate_up"} else "plain", first("hidden_act", "activation_function", "hidden_activation") or "silu",
        first("max_position_embeddings", "n_positions"), tuple(types), windows, experts if sparse else 0,
        first("num_experts_per_tok", "num_experts_per_token") or 0, first("moe_intermediate_size") or inter,
        first("shared_expert_intermediate_size") or 0, tuple(sparse), first("q_lora_rank") or 0, lora, rope, nope,
        bool(first("attn_logit_softcapping")), (heads,) * layers, (kv,) * layers, (head_dim,) * layers, (elements,) * layers,
        (0,) * layers, (0,) * layers,
    )
