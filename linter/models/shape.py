"""Shape: the text decoder's dimensions, from its config fields and checked against the tensors they made.

Head counts and widths of each layer come from that layer's own projections, because many models change them from
layer to layer; the config only says how wide one head is. What is cached per token follows
the caches of transformers 5.23 (`cache_utils.py`) and vLLM (`v1/kv_cache_interface.py`): K and V of every
KV head, one latent under multi-head latent attention, a state of constant size for SSM, linear attention and
short convolutions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .inventory import Part
from .model import Shape, Tensor

_HIDDEN = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "attention_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "attn_config.kv_n_heads")
_INTERMEDIATE = (
    "intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "decoder_ffn_dim", "ffn_config.ffn_hidden_size",
    "intermediate_dim",
)  # fmt: skip
_ACTIVATION = (
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "activation",
    "feed_forward_proj",
    "mlp_hidden_act",
)
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "n_ctx",
)
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "ffn_config.moe_num_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_k",
    "moe_topk",
    "top_k_experts",
    "ffn_config.moe_top_k",
    "moe_top_k",
)
_OTHER_PARTS = ("vision", "audio", "projector")
_CROSS = ("cross_attn.", "encoder_attn.", "crossattention.", "layer.1.EncDecAttention.")


class _Layer:
    """The tensors of one decoder layer, by role and by module name."""

    def __init__(self) -> None:
        self.roles: dict[str, Tensor] = {}
        self.leaves: dict[str, Tensor] = {}

    def out_features(self, role: str) -> int:
        """Output width of the projection with this role, 0 without one."""
        tensor = self.roles.get(role)
        return tensor.shape[0] if tensor else 0

    def in_features(self, role: str) -> int:
        """Input width of the projection with this role, 0 without one."""
        tensor = self.roles.get(role)
        return tensor.shape[-1] if tensor else 0


class _Heads(NamedTuple):
    heads: int
    kv_heads: int
    head_dim: int
    elements: int


def shape_of(part: Part, tensors: list[Tensor]) -> Shape:
    """The Shape of a model that `part` describes and `tensors` make up."""
    fields = part.text
    stack, encoder_layers = _decoder_stack(tensors)
    layers = _layers(tensors, stack)
    count = len(layers)
    embedding = _embedding(tensors)
    head = next((t for t in reversed(tensors) if t.role == "head" and len(t.shape) == 2), None)
    hidden = _int(fields.first(*_HIDDEN)) or (embedding.shape[1] if embedding else 0)
    heads = _int(fields.first(*_HEADS))
    rope, nope = _int(fields.get("qk_rope_head_dim")), _int(fields.get("qk_nope_head_dim"))
    latent = _int(fields.get("kv_lora_rank"))
    head_dim = _head_dim(fields, hidden, heads, layers)
    v_head_dim = _int(fields.get("v_head_dim")) or head_dim
    types, windows = _layer_types(fields, layers)
    if latent:
        head_dim = nope + rope
        each = [
            _Heads(heads, heads, head_dim, latent + rope) if _attends(layer) else _Heads(0, 0, 0, 0) for layer in layers
        ]
    else:
        each = [
            _layer_heads(layer, kind, heads, head_dim, v_head_dim) for layer, kind in zip(layers, types, strict=True)
        ]
    sparse = tuple(i for i, layer in enumerate(layers) if "expert_down" in layer.roles)
    experts = layers[sparse[0]].roles["expert_down"] if sparse else None
    cross = tuple(i for i, layer in enumerate(layers) if layer.leaves.keys() & {"cross"})
    index_dim = _int(fields.get("index_head_dim"))
    return Shape(
        hidden=hidden,
        layers=count,
        heads=heads,
        kv_heads=_kv_heads(fields, each, heads),
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        intermediate=_intermediate(fields, layers, hidden),
        vocabulary=head.shape[0] if head else embedding.shape[0] if embedding else _int(fields.get("vocab_size")),
        tied=head is None,
        norm=part.text_part.table.get("norm") or _norm(tensors),
        mlp="gated" if any(_gated(layer) for layer in layers) else "plain",
        activation=str(fields.first(*_ACTIVATION) or ""),
        max_positions=_int(fields.first(*_POSITIONS)) or None,
        layer_types=types,
        windows=windows,
        experts=experts.shape[0]
        if experts and len(experts.shape) == 3
        else _int(fields.first(*_EXPERTS))
        if sparse
        else 0,
        experts_per_token=_int(fields.first(*_TOP_K)) if sparse else 0,
        moe_intermediate=_moe_intermediate(experts, hidden, _int(fields.first(*_EXPERTS))) if experts else 0,
        shared_intermediate=max((layer.in_features("shared_down") for layer in layers), default=0),
        sparse_layers=sparse,
        q_lora_rank=_int(fields.get("q_lora_rank")) if latent else 0,
        kv_lora_rank=latent,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=nope,
        softcap=bool(fields.first("final_logit_softcapping", "attn_logit_softcapping")),
        layer_heads=tuple(item.heads for item in each),
        layer_kv_heads=tuple(item.kv_heads for item in each),
        layer_head_dims=tuple(item.head_dim for item in each),
        kv_elements=tuple(item.elements for item in each),
        conv_states=tuple(_conv_state(layer) for layer in layers),
        recurrent_states=tuple(_recurrent_state(fields, layer) for layer in layers),
        state_dtype=_text(fields.get("mamba_ssm_dtype")),
        index_head_dim=index_dim,
        indexer_layers=tuple(i for i, layer in enumerate(layers) if "indexer" in layer.leaves) if index_dim else (),
        cross_layers=cross,
        cross_tokens=_cross_tokens(part, fields) if cross else 0,
        encoder_layers=encoder_layers,
    )


def _int(value: Any) -> int:
    if isinstance(value, list):
        value = max((item for item in value if isinstance(item, (int, float))), default=0)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 48 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _decoder_stack(tensors: list[Tensor]) -> tuple[str, int]:
    """The prefix of the decoder's stack, and the layers of an encoder stack beside it."""
    sizes: dict[str, int] = {}
    lengths: dict[str, int] = {}
    for tensor in tensors:
        if tensor.layers is not None and tensor.role not in _OTHER_PARTS:
            sizes[tensor.stack] = sizes.get(tensor.stack, 0) + tensor.elements
            lengths[tensor.stack] = max(lengths.get(tensor.stack, 0), max(tensor.layers, default=-1) + 1)
    if not sizes:
        return "", 0
    decoders = [stack for stack in sizes if "decoder" in stack]
    encoders = [stack for stack in sizes if "encoder" in stack and "decoder" not in stack]
    chosen = max(decoders if decoders and encoders else sizes, key=lambda stack: sizes[stack])
    return chosen, max((lengths[stack] for stack in encoders if stack != chosen), default=0)


def _layers(tensors: list[Tensor], stack: str) -> list[_Layer]:
    """The decoder's layers; layers of the same tensors are one object."""
    members = [tensor for tensor in tensors if tensor.layers and tensor.stack == stack]
    of_layer: list[list[int]] = [
        [] for _ in range(max((tensor.layers[-1] + 1 for tensor in members if tensor.layers), default=0))
    ]
    for at, tensor in enumerate(members):
        for i in tensor.layers or ():
            of_layer[i].append(at)
    made: dict[tuple[int, ...], _Layer] = {}
    layers = []
    for indices in of_layer:
        key = tuple(indices)
        if key not in made:
            made[key] = _layer([members[at] for at in indices], len(stack) + 4)
        layers.append(made[key])
    return layers


def _layer(tensors: list[Tensor], start: int) -> _Layer:
    layer = _Layer()
    for tensor in tensors:
        inner = tensor.name[start:]
        if inner.startswith(_CROSS):
            layer.leaves.setdefault("cross", tensor)
            if not inner.startswith("cross_attn."):
                continue
        if ".indexer." in inner:
            layer.leaves.setdefault("indexer", tensor)
            continue
        if tensor.role not in ("norm", "bias", "other"):
            layer.roles.setdefault(tensor.role, tensor)
        layer.leaves.setdefault(tensor.leaf, tensor)
    return layer


def _attends(layer: _Layer) -> bool:
    return bool({"mla", "q", "qkv"} & layer.roles.keys())


def _head_dim(fields: Any, hidden: int, heads: int, layers: list[_Layer]) -> int:
    stated = _int(fields.first("head_dim", "d_kv", "kv_channels", "attention_head_dim"))
    width = next((layer.out_features("q") or layer.in_features("o") for layer in layers if "o" in layer.roles), 0)
    if stated and (not width or width % stated == 0):
        return stated
    if heads and width and width % heads == 0:
        return width // heads
    return stated or (hidden // heads if heads else 0)


def _layer_heads(layer: _Layer, kind: str, heads: int, head_dim: int, v_head_dim: int) -> _Heads:
    """Heads of one layer: widths of its projections over the width of a head."""
    fused = "qkv" in layer.roles and "q" not in layer.roles
    if kind in ("linear_attention", "mamba", "conv", "mlp", "moe") or not (fused or "q" in layer.roles) or not head_dim:
        return _Heads(0, 0, 0, 0)
    if fused:
        kv_heads = max(0, layer.out_features("qkv") // head_dim - heads) // 2
        return _Heads(heads, kv_heads, head_dim, kv_heads * (head_dim + v_head_dim))
    norm = layer.leaves.get("q_norm") or layer.leaves.get("q_layernorm")
    if norm is not None and len(norm.shape) == 1 and norm.shape[0] < layer.out_features("q"):
        if head_dim != norm.shape[0]:
            v_head_dim = norm.shape[0]
        head_dim = norm.shape[0]
    own = layer.in_features("o") // v_head_dim if "o" in layer.roles else layer.out_features("q") // head_dim
    keys = layer.out_features("k")
    return _Heads(own, keys // head_dim, head_dim, keys + (layer.out_features("v") or keys))


def _kv_heads(fields: Any, each: list[_Heads], heads: int) -> int:
    if any(item.kv_heads for item in each):
        return max(item.kv_heads for item in each)
    return _int(fields.first(*_KV_HEADS)) or heads


def _intermediate(fields: Any, layers: list[_Layer], hidden: int) -> int:
    widths = [layer.in_features("down") for layer in layers if "down" in layer.roles]
    return max(widths, default=0) or _int(fields.first(*_INTERMEDIATE)) or 4 * hidden


def _moe_intermediate(experts: Tensor, hidden: int, count: int) -> int:
    """Width of one expert: [experts, hidden, width], transposed in some models, or one matrix of all experts' rows."""
    if len(experts.shape) == 3:
        return experts.shape[2] if experts.shape[1] == hidden or experts.shape[2] != hidden else experts.shape[1]
    return experts.shape[0] // count if count else experts.shape[0]


def _norm(tensors: list[Tensor]) -> str:
    return "layer" if any(tensor.role == "norm" and tensor.name.endswith(".bias") for tensor in tensors) else "rms"


def _gated(layer: _Layer) -> bool:
    """A gate beside the up projection, or one fused with it and so twice as wide as the down projection."""
    if {"gate", "gate_up", "shared_gate"} & layer.roles.keys():
        return True
    up, down = layer.roles.get("expert_gate_up"), layer.roles.get("expert_down")
    if up is None or down is None:
        return False
    return 2 * max(down.size, 1) == up.size or len(up.shape) == 2


def _embedding(tensors: list[Tensor]) -> Tensor | None:
    """The token embedding: the one with most rows, per-layer embeddings aside."""
    found = [t for t in tensors if t.role == "embedding" and len(t.shape) == 2 and "per_layer" not in t.name]
    return max(found, key=lambda tensor: tensor.shape[0], default=None)


def _layer_types(fields: Any, layers: list[_Layer]) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    stated = fields.first("layer_types", "layers_block_type")
    window = _int(fields.first("sliding_window", "attention_window_size")) or None
    if fields.get("use_sliding_window") is False:
        window = None
    chunk = _int(fields.get("attention_chunk_size")) or None
    first = _int(fields.get("max_window_layers"))
    local = _local_layers(fields, len(layers))
    types: list[str] = []
    windows: list[int | None] = []
    for i, layer in enumerate(layers):
        kind = stated[i] if isinstance(stated, list) and i < len(stated) and isinstance(stated[i], str) else ""
        kind = _kind(kind, layer, window is not None and i >= first, local[i] if local else None)
        types.append(kind)
        sliding = kind in ("sliding_attention", "hybrid_sliding")
        windows.append(window if sliding else chunk if kind == "chunked_attention" else None)
    return tuple(types), tuple(windows)


def _local_layers(fields: Any, count: int) -> list[bool] | None:
    """GPT-Neo's `attention_types`: [[["global", "local"], 6]]."""
    blocks = fields.get("attention_types")
    if not isinstance(blocks, list):
        return None
    local: list[bool] = []
    for block in blocks:
        if isinstance(block, list) and len(block) == 2 and isinstance(block[0], list) and isinstance(block[1], int):
            local += [kind == "local" for _ in range(min(block[1], count)) for kind in block[0]]
    return local[:count] if len(local) >= count else None


def _kind(stated: str, layer: _Layer, windowed: bool, local: bool | None) -> str:
    roles = layer.roles.keys()
    if stated == "linear_attention" or not stated:
        if "A_log" in layer.leaves and "D" in layer.leaves:
            return "mamba" if not ({"q", "qkv", "mla"} & roles) else "hybrid"
        if stated:
            return stated
        if "ssm" in roles and not _attends(layer):
            return "linear_attention"
        if "conv" in roles and not _attends(layer):
            return "conv"
        if not _attends(layer) and ({"up", "down", "expert_down"} & roles):
            return "mlp"
        if local is not None:
            return "sliding_attention" if local else "full_attention"
        return "sliding_attention" if windowed else "full_attention"
    return stated


def _conv_state(layer: _Layer) -> int:
    """channels x kernel of the depthwise convolutions, which is what transformers caches (vLLM keeps kernel - 1)."""
    return sum(
        tensor.size
        for leaf, tensor in layer.leaves.items()
        if tensor.role == "conv" and len(tensor.shape) == 3 and tensor.shape[1] == 1
    )


def _recurrent_state(fields: Any, layer: _Layer) -> int:
    decay = layer.leaves.get("A_log")
    if decay is not None and len(decay.shape) == 2:
        return decay.size
    if decay is not None and "D" in layer.leaves:
        per_head = _int(fields.first("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"))
        states = _int(fields.first("ssm_state_size", "mamba_d_state", "state_size"))
        inner = _int(fields.get("_inter"))
        return (inner or decay.size * per_head) * states
    if decay is not None or "ssm" in layer.roles:
        value_heads = _int(fields.first("linear_num_value_heads", "linear_num_heads"))
        key_dim = _int(fields.first("linear_key_head_dim", "linear_head_dim"))
        value_dim = _int(fields.first("linear_value_head_dim", "linear_head_dim"))
        return value_heads * key_dim * value_dim
    if "output_gate" in layer.leaves and "qkv" in layer.roles:
        return _int(fields.first(*_HEADS)) * _int(fields.first("head_dim", "_hd")) ** 2
    return 0


def _cross_tokens(part: Part, fields: Any) -> int:
    """Encoder positions per request: Mllama's tiles x (patches + 1), else the encoder's maximum."""
    own = part.fields
    tiles, image, patch = (
        _int(own.get(f"vision_config.{key}")) for key in ("max_num_tiles", "image_size", "patch_size")
    )
    if tiles and image and patch:
        return tiles * ((image // patch) ** 2 + 1)
    return _int(fields.first("max_source_positions", "max_position_embeddings"))
