"""Megatron models by their dimensions, as the nearest architecture of Transformers; shared by its flags and by NeMo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.native import decoder, multiple

if TYPE_CHECKING:
    from ..core.arguments import Arguments

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


def dropped(sizes: Sizes, keys: Arguments, usual: float) -> Sizes:
    """The sizes with `hidden_dropout` and `attention_dropout`; `usual` where a file does not say."""
    hidden, attention = keys.number("hidden_dropout"), keys.number("attention_dropout")
    return sizes._replace(
        dropout=float(hidden.value) if hidden else usual,
        attention_dropout=float(attention.value) if attention else usual,
    )


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
