"""Megatron models by their dimensions, as the nearest architecture of Transformers; shared by all that start it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.backends.megatron import at
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, integer
from ..core.decoder_config import decoder, multiple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.bindings.reader import Reader

VOCABULARIES = {"GPT2BPETokenizer": 50257, "BertWordPieceLowerCase": 30522, "BertWordPieceCase": 28996}
"""Rows that a tokenizer brings with it."""

GPT2_VOCABULARY = 50257

MODULES = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_proj": ("o_proj",), "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}  # fmt: skip
"""Megatron's layers -> those of the checkpoint that they hold."""


class Sizes(NamedTuple):
    """A decoder's dimensions in Megatron's words.

    gated      the MLP has a gate (swiglu, geglu); `vocabulary` is padded already
    experts    0 for none; `expert_hidden` and `shared_hidden` are widths of the experts' MLPs
    latent     the ranks of multi-latent attention (`q_lora_rank`, `kv_lora_rank`, head dimensions)
    dropout, attention_dropout   behind the embedding and both branches; of attention's weights
    """

    hidden: int
    layers: int
    heads: int
    vocabulary: int
    intermediate: int
    groups: int | None = None
    head_dim: int | None = None
    gated: bool = False
    tied: bool = True
    learned_positions: int = 0
    experts: int = 0
    topk: int = 2
    expert_hidden: int = 0
    shared_hidden: int = 0
    dense_layers: int = 0
    latent: dict[str, Any] | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0


def padded(vocabulary: int, divisor: int, tensor: int) -> int:
    """megatron/training/tokenizer: a multiple of `make_vocab_size_divisible_by` x tensor parallel size."""
    return multiple(vocabulary, max(1, divisor * tensor))


def feed_forward(hidden: int, *, gated: bool) -> int:
    """The width of the MLP where nothing states it: 4 h, with SwiGLU two thirds of it in multiples of 64."""
    return int((4 * hidden * 2 / 3) / 64) * 64 if gated else 4 * hidden


_DROPOUTS = ("hidden_dropout", "residual_dropout", "embedding_dropout", "resid_pdrop", "embd_pdrop")
"""Megatron's own name, and those of StarCoder2 and GPT-2."""


def sizes_of(
    reader: Reader, section: str = "", *, gated: bool, tied: bool, learned: bool, vocabulary: int,
    dropout: float = 0.1, width: str = "ffn_hidden_size",
    groups: tuple[str, ...] = ("num_query_groups",),
) -> Sizes | None:  # fmt: skip
    """The dimensions that a section states in Megatron's words; None without layers, hidden size or heads.

    `learned`: positions are; `dropout` is what holds where the file is silent; `width` and `groups` are the tool's
    names of the MLP's width and of the heads of keys.
    """

    def size(*names: str, least: int = 1) -> int | None:
        found: int | None = reader.value(integer(least), *(at(section, name) for name in names))
        return found

    hidden, layers, heads = size("hidden_size"), size("num_layers"), size("num_attention_heads")
    if hidden is None or layers is None or heads is None:
        return None
    intermediate = size(width) or feed_forward(hidden, gated=gated)
    channels = size("kv_channels")
    return Sizes(
        hidden, layers, heads, vocabulary, intermediate,
        groups=size(*groups), head_dim=channels if channels and channels * heads != hidden else None,
        gated=gated, tied=tied, learned_positions=(size("max_position_embeddings") or 0) if learned else 0,
        experts=size("num_experts", "num_moe_experts", least=2) or 0, topk=size("moe_router_topk") or 2,
        expert_hidden=size("moe_ffn_hidden_size") or intermediate,
        shared_hidden=size("moe_shared_expert_intermediate_size") or 0,
        dense_layers=_dense_layers(reader.value(TEXT, at(section, "moe_layer_freq"), default="")),
        latent=_latent(size) if reader.value(FLAG, at(section, "multi_latent_attention")) else None,
        dropout=reader.value(NUMBER, at(section, "hidden_dropout"), default=dropout),
        attention_dropout=reader.value(NUMBER, at(section, "attention_dropout"), default=dropout),
    )  # fmt: skip


def _dense_layers(expression: str) -> int:
    """Leading layers without experts: `--moe-layer-freq "([0]*3+[1]*58)"`, or a list with all its numbers."""
    count = 0
    for numbers, times in _RUN.findall(expression.replace(" ", "")):
        row = numbers.split(",")
        leading = next((index for index, number in enumerate(row) if number != "0"), len(row))
        if leading < len(row):
            return count + leading
        count += leading * int(times or 1)
    return count


_RUN = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?")
"""A part of the expression that `--moe-layer-freq` takes."""


def _latent(size: Callable[[str], int | None]) -> dict[str, Any]:
    """Multi-latent attention; defaults of `MLATransformerConfig`."""
    usual = {
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128,
    }  # fmt: skip
    names = {"qk_head_dim": "qk_nope_head_dim", "qk_pos_emb_head_dim": "qk_rope_head_dim"}
    return {names.get(key, key): size(key) or default for key, default in usual.items()}


def set_model(reader: Reader, layers: str, name: str, sizes: Sizes | None, missing: str, unknown: str = "") -> None:
    """`model`: a config.json of the dimensions, at the key of the layers.

    `missing` is told where they are not stated, `unknown` of what is assumed of them.
    """
    if sizes is None:
        reader.assumed("model", None, missing)
        return
    model = config_of(f"{name}-{sizes.layers}x{sizes.hidden}", sizes)
    note = f"the stated dimensions, as a {model['model_type']} of Transformers{unknown}"
    reader.set("model", reader.given(POSITIVE, layers), model, note)


def config_of(name: str, sizes: Sizes) -> dict[str, Any]:
    """A config.json with the same shapes.

    Gated layers are Llama's (Mixtral's, Qwen2-MoE's, DeepSeek's with experts, which stand for plain experts too); plain
    ones GPT-2's with learned positions, else GPT-NeoX's, and StarCoder2's where query heads share keys.
    """
    groups = sizes.groups or sizes.heads
    common: dict[str, Any] = {
        "hidden": sizes.hidden,
        "layers": sizes.layers,
        "heads": sizes.heads,
        "kv_heads": groups,
        "vocabulary": sizes.vocabulary,
        "tie_word_embeddings": sizes.tied,
        **dict.fromkeys(_DROPOUTS, sizes.dropout),
        **dict.fromkeys(("attention_dropout", "attn_pdrop"), sizes.attention_dropout),
    }
    if sizes.head_dim:
        common["head_dim"] = sizes.head_dim
    if sizes.experts and not sizes.gated:
        sizes = _as_gated(sizes)
    if sizes.latent is not None or (sizes.experts and sizes.dense_layers):
        return _deepseek(name, sizes, common)
    if sizes.experts:
        common |= {"num_experts_per_tok": sizes.topk}
        if sizes.shared_hidden:
            common |= {"moe_intermediate_size": sizes.expert_hidden, "num_experts": sizes.experts}
            common["shared_expert_intermediate_size"] = sizes.shared_hidden
            return decoder(name, "qwen2_moe", intermediate=sizes.intermediate, **common)
        return decoder(name, "mixtral", intermediate=sizes.expert_hidden, num_local_experts=sizes.experts, **common)
    if sizes.gated:
        return decoder(name, "llama", intermediate=sizes.intermediate, hidden_act="silu", **common)
    if groups != sizes.heads or sizes.head_dim:
        return decoder(name, "starcoder2", intermediate=sizes.intermediate, hidden_act="gelu_pytorch_tanh", **common)
    if sizes.learned_positions:
        common["max_position_embeddings"] = sizes.learned_positions
        return decoder(name, "gpt2", intermediate=sizes.intermediate, activation_function="gelu_pytorch_tanh", **common)
    return decoder(name, "gpt_neox", intermediate=sizes.intermediate, hidden_act="gelu_pytorch_tanh", **common)


def _as_gated(sizes: Sizes) -> Sizes:
    """Experts of two thirds of the width: three matrices with a gate weigh and save as much as two without.

    Width f: weights 2 h f = 3 h (2 f / 3); saved of a row f before and f behind the activation = 3 (2 f / 3) of gate,
    up and product.
    """
    return sizes._replace(
        intermediate=round(sizes.intermediate * 2 / 3),
        expert_hidden=round(sizes.expert_hidden * 2 / 3),
        shared_hidden=round(sizes.shared_hidden * 2 / 3),
    )


def _deepseek(name: str, sizes: Sizes, common: dict[str, Any]) -> dict[str, Any]:
    expert = sizes.expert_hidden or sizes.intermediate
    latent = sizes.latent or {}
    kind = "deepseek_v3" if sizes.latent is not None else "glm4_moe"
    return decoder(
        name, kind, intermediate=sizes.intermediate, moe_intermediate_size=expert,
        n_routed_experts=sizes.experts, num_experts_per_tok=sizes.topk,
        n_shared_experts=max(0, round(sizes.shared_hidden / expert)), first_k_dense_replace=sizes.dense_layers,
        **latent, **common,
    )  # fmt: skip
