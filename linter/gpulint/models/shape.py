"""Shape: the text decoder's dimensions, from its config fields and the tensors they made.

Head counts and widths of each layer come from that layer's own projections, because many models change them from
layer to layer; the config only says how wide one head is. What is cached per token follows the caches of transformers
5.23 (`cache_utils.py`) and vLLM (`v1/kv_cache_interface.py`): K and V of every KV head, one latent under multi-head
latent attention, a state of constant size for SSM, linear attention and short convolutions.
"""

from __future__ import annotations

from typing import Any

from .fields import Fields
from .inventory import Part
from .layers import (
    CACHELESS,
    Heads,
    Layer,
    conv_state,
    decoder_stack,
    layer_heads,
    layers_of,
    number,
    recurrent_state,
)
from .model import Shape, Tensor

_HIDDEN = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads")
_HEAD_DIM = ("head_dim", "d_kv", "kv_channels", "attention_head_dim")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "attn_config.kv_n_heads")
_INTERMEDIATE = (
    "intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "decoder_ffn_dim", "intermediate_dim",
    "ffn_config.ffn_hidden_size",
)  # fmt: skip
_ACTIVATION = (
    "hidden_act", "hidden_activation", "activation_function", "activation", "feed_forward_proj", "mlp_hidden_act",
)  # fmt: skip
_POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "model_max_length", "n_ctx",
    "max_target_positions",
)  # fmt: skip
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "ffn_config.moe_num_experts")
_TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts", "moe_top_k",
    "ffn_config.moe_top_k",
)  # fmt: skip
_SLIDING = ("sliding_attention", "hybrid_sliding")


def shape_of(part: Part, tensors: list[Tensor]) -> Shape:
    """The Shape of a model that `part` describes and `tensors` make up."""
    fields = part.text
    stack, encoder_layers = decoder_stack(tensors)
    layers = _run(layers_of(tensors, stack), fields)
    embedding = _embedding(tensors)
    head = next((t for t in reversed(tensors) if t.role == "head" and len(t.shape) == 2), None)
    hidden = number(fields.first(*_HIDDEN)) or (embedding.shape[1] if embedding else 0)
    heads = number(fields.first(*_HEADS))
    latent, rope, nope = (number(fields.get(key)) for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    head_dim = nope + rope if latent else _head_dim(fields, hidden, heads, layers)
    v_head_dim = number(fields.get("v_head_dim")) or head_dim
    types, windows = _layer_types(fields, layers)
    each = [
        _latent_heads(layer, kind, heads, head_dim, latent + rope)
        if latent
        else layer_heads(layer, kind, heads, head_dim, v_head_dim)
        for layer, kind in zip(layers, types, strict=True)
    ]
    each = _shared_heads(each, types)
    sparse = tuple(i for i, layer in enumerate(layers) if "expert_down" in layer.roles)
    experts, moe_intermediate = _experts(fields, layers[sparse[0]], hidden) if sparse else (0, 0)
    cross = tuple(i for i, layer in enumerate(layers) if layer.cross)
    index_dim = number(fields.get("index_head_dim"))
    return Shape(
        hidden=hidden,
        layers=len(layers),
        heads=heads,
        kv_heads=max((item.kv_heads for item in each), default=0) or number(fields.first(*_KV_HEADS)) or heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        intermediate=_intermediate(fields, layers) or moe_intermediate or 4 * hidden,
        vocabulary=head.shape[0] if head else embedding.shape[0] if embedding else number(fields.get("vocab_size")),
        tied=head is None,
        norm=part.text_part.table.get("norm") or _norm(tensors),
        mlp="gated" if any(layer.gated for layer in layers) else "plain",
        activation=str(fields.first(*_ACTIVATION) or ""),
        max_positions=number(fields.first(*_POSITIONS)) or None,
        layer_types=types,
        windows=windows,
        experts=experts,
        experts_per_token=number(fields.first(*_TOP_K)) if sparse else 0,
        moe_intermediate=moe_intermediate,
        shared_intermediate=max((layer.in_features("shared_down") for layer in layers), default=0),
        sparse_layers=sparse,
        q_lora_rank=number(fields.get("q_lora_rank")) if latent else 0,
        kv_lora_rank=latent,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        softcap=bool(fields.first("final_logit_softcapping", "attn_logit_softcapping")),
        layer_heads=tuple(item.heads for item in each),
        layer_kv_heads=tuple(item.kv_heads for item in each),
        layer_head_dims=tuple(item.head_dim for item in each),
        kv_elements=tuple(item.elements for item in each),
        conv_states=tuple(conv_state(layer) for layer in layers),
        recurrent_states=tuple(recurrent_state(fields, layer, heads) for layer in layers),
        state_dtype=_text(fields.get("mamba_ssm_dtype")),
        index_head_dim=index_dim,
        indexer_layers=tuple(i for i, layer in enumerate(layers) if layer.indexer) if index_dim else (),
        cross_layers=cross,
        cross_tokens=_cross_tokens(part, fields) if cross else 0,
        encoder_layers=encoder_layers,
        positions_stated=fields.states(*_POSITIONS),
    )


def _run(layers: list[Layer], fields: Fields) -> list[Layer]:
    """The layers as they run: ALBERT's groups, each several times (modeling_albert.py `AlbertTransformer`)."""
    groups, count = number(fields.get("num_hidden_groups")), number(fields.get("num_hidden_layers"))
    if not groups or count <= len(layers):
        return layers
    return [layers[min(int(i * groups / count), len(layers) - 1)] for i in range(count)]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _head_dim(fields: Fields, hidden: int, heads: int, layers: list[Layer]) -> int:
    """The width of a key: what the config states where the projections are a multiple of it, else their share."""
    stated = number(fields.first(*_HEAD_DIM))
    width = next((layer.out_features("q") or layer.in_features("o") for layer in layers if "o" in layer.roles), 0)
    if stated and (not width or width % stated == 0):
        return stated
    if heads and width and width % heads == 0:
        return width // heads
    return stated or (hidden // heads if heads else 0)


def _latent_heads(layer: Layer, kind: str, heads: int, head_dim: int, latent: int) -> Heads:
    """Multi-head latent attention caches one compressed vector for all heads."""
    if kind in CACHELESS or not layer.attends:
        return Heads()
    return Heads(heads, heads, head_dim, max(1, layer.latents) * latent)


def _shared_heads(each: list[Heads], types: tuple[str, ...]) -> list[Heads]:
    """Zamba: hybrid layers without attention of their own share that of an earlier one, and cache for themselves."""
    own = next((heads for heads, kind in zip(each, types, strict=True) if kind == "hybrid" and heads.heads), None)
    if own is None:
        return each
    return [own if kind == "hybrid" and not heads.heads else heads for heads, kind in zip(each, types, strict=True)]


def _intermediate(fields: Fields, layers: list[Layer]) -> int:
    """The width of the dense MLP, of most layers where it differs between them; 0 without one."""
    widths = [layer.in_features("down") for layer in layers if "down" in layer.roles]
    if widths:
        return max(set(widths), key=lambda width: (widths.count(width), width))
    return number(fields.first(*_INTERMEDIATE))


def _experts(fields: Fields, layer: Layer, hidden: int) -> tuple[int, int]:
    """How many experts and how wide: [experts, hidden, width], transposed in some models, or all experts' rows."""
    down = layer.roles["expert_down"]
    count = number(fields.first(*_EXPERTS))
    if len(down.shape) == 3:
        wide = down.shape[2] if down.shape[1] == hidden or down.shape[2] != hidden else down.shape[1]
        return down.shape[0], wide
    return count, down.shape[0] // count if count else down.shape[0]


def _norm(tensors: list[Tensor]) -> str:
    return "layer" if any(tensor.role == "norm" and tensor.name.endswith(".bias") for tensor in tensors) else "rms"


def _embedding(tensors: list[Tensor]) -> Tensor | None:
    """The token embedding: the one with most rows, per-layer embeddings aside."""
    found = [t for t in tensors if t.role == "embedding" and len(t.shape) == 2 and "per_layer" not in t.name]
    return max(found, key=lambda tensor: tensor.shape[0], default=None)


def _layer_types(fields: Fields, layers: list[Layer]) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    stated = fields.first("layer_types", "layers_block_type")
    window = number(fields.first("sliding_window", "attention_window_size")) or None
    window = window or number(fields.get("local_attention")) // 2 or None
    if fields.get("use_sliding_window") is False:
        window = None
    chunk = number(fields.get("attention_chunk_size")) or None
    first = number(fields.get("max_window_layers"))
    local = _local_layers(fields, len(layers))
    types: list[str] = []
    for i, layer in enumerate(layers):
        kind = stated[i] if isinstance(stated, list) and i < len(stated) and isinstance(stated[i], str) else ""
        types.append(_kind(kind, layer, window is not None and i >= first, local[i] if local else None))
    windows = tuple(window if kind in _SLIDING else chunk if kind == "chunked_attention" else None for kind in types)
    return tuple(types), windows


def _local_layers(fields: Fields, count: int) -> list[bool] | None:
    """GPT-Neo's `attention_types`: [[["global", "local"], 6]]."""
    blocks = fields.get("attention_types")
    if not isinstance(blocks, list):
        return None
    local: list[bool] = []
    for block in blocks:
        if isinstance(block, list) and len(block) == 2 and isinstance(block[0], list) and isinstance(block[1], int):
            local += [kind == "local" for _ in range(min(block[1], count)) for kind in block[0]]
    return local[:count] if len(local) >= count else None


def _kind(stated: str, layer: Layer, windowed: bool, local: bool | None) -> str:
    """The kind of a layer: as stated, SSM layers told apart from linear attention, else by what it holds."""
    ssm = "A_log" in layer.leaves and "D" in layer.leaves
    if ssm and stated in ("", "linear_attention"):
        return "hybrid" if layer.attends else "mamba"
    if stated:
        return stated
    if not layer.attends:
        for role, kind in (("ssm", "linear_attention"), ("conv", "conv"), ("up", "mlp"), ("expert_down", "moe")):
            if role in layer.roles:
                return kind
    if local is not None:
        return "sliding_attention" if local else "full_attention"
    return "sliding_attention" if windowed else "full_attention"


def _cross_tokens(part: Part, fields: Fields) -> int:
    """Encoder positions per request: Mllama's tiles x (patches + 1), else the encoder's maximum."""
    vision: Any = part.fields.config.get("vision_config")
    if isinstance(vision, dict):
        names = ("max_num_tiles", "image_size", "patch_size")
        tiles, image, patch = (number(part.fields.get(f"vision_config.{name}")) for name in names)
        return tiles * ((image // patch) ** 2 + 1) if patch else 0
    return number(fields.first("max_source_positions", *_POSITIONS))
