"""What a decoder keeps of the tokens it has seen, layer by layer, derived from the model's own tensors.

Elements per token and layer (times the bytes of the cache's dtype):

    multi-head, grouped, multi-query   kv_heads * (key head dim + value head dim)
    multi-head latent attention        kv_lora_rank + qk_rope_head_dim, whole on every tensor-parallel rank
    sparse-attention indexer           + index_head_dim, whole on every rank
    sliding window, chunked            the same, for at most the window
    layers that share another's cache  0

Elements per sequence, whatever its length:

    Mamba 1            intermediate * (conv kernel + state size)
    Mamba 2            (intermediate + 2 * groups * state size) * kernel + intermediate * state size
    gated DeltaNet     (2 * key heads * key dim + value heads * value dim) * kernel + value heads * value dim * key dim
    Kimi delta         3 * heads * head dim * kernel + heads * head dim^2
    lightning          heads * head dim^2
    short convolution  hidden * kernel

Sources: transformers 5.23 cache_utils.py and the models' forward; vLLM 0.33 v1/kv_cache_interface.py and
model_executor/layers/mamba/mamba_utils.py. Measured on small models of each family, with caches created by
transformers 5.23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..units import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..models.model import Model, Tensor

_OUTSIDE = frozenset({"vision", "audio", "projector"})
_STATE_SIZE = ("state_size", "ssm_state_size", "mamba_d_state")
_CACHE_DTYPES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "float8": 1.0, "int8": 1.0}


class LayerCache(NamedTuple):
    """What one layer keeps, in elements.

    heads           key and value heads, of which tensor parallelism gives each rank whole ones
    head_elements   key plus value of one head and one token
    latent          per token, whole on every rank
    window          tokens kept; None for all
    conv            per sequence, of the convolution;  recurrent  per sequence, of the state
    cross           per token of an encoder or an image, once a request, divided like heads
    """

    heads: int = 0
    head_elements: int = 0
    latent: int = 0
    window: int | None = None
    conv: int = 0
    recurrent: int = 0
    cross: int = 0

    @property
    def grows(self) -> bool:
        """Whether it keeps something for each token."""
        return self.head_elements > 0 or self.latent > 0

    def token_elements(self, tensor: int = 1) -> int:
        """Elements per token on one of `tensor` ranks; heads stay whole, so fewer heads than ranks are repeated."""
        return -(-self.heads // tensor) * self.head_elements + self.latent

    def kept(self, tokens: int) -> int:
        """How many of `tokens` tokens it keeps."""
        return tokens if self.window is None else min(tokens, self.window)


def layer_caches(model: Model) -> tuple[LayerCache, ...]:
    """The cache of every decoder layer, first to last."""
    layers: dict[tuple[str, int], list[Tensor]] = {}
    for tensor in model.tensors:
        if tensor.layers is None or tensor.role in _OUTSIDE or _encodes(tensor.stack):
            continue
        for layer in tensor.layers:
            layers.setdefault((tensor.stack, layer), []).append(tensor)
    caches = [_layer_cache(model, layer, found) for (_, layer), found in sorted(layers.items())]
    return tuple(_shared(model, [cache for cache in caches if cache is not None]))


def cache_bytes(dtype: str | None, weights_dtype: str) -> float:
    """Bytes of one cached element for a `kv_cache_dtype`; `auto` and None follow the model's dtype.

    Raises KeyError for a dtype that no engine has.
    """
    name = (dtype or "auto").lower()
    if name == "auto":
        return max(DTYPE_BYTES[weights_dtype], 2.0)
    return _CACHE_DTYPES[name] if name in _CACHE_DTYPES else DTYPE_BYTES[name]


def bytes_per_token(caches: Iterable[LayerCache], element: float, tensor: int = 1, pipeline: int = 1) -> int:
    """Bytes that one more token adds on the fullest rank while every window still has room."""
    return fullest_stage([round(cache.token_elements(tensor) * element) for cache in caches], pipeline)


def sequence_bytes(
    caches: Iterable[LayerCache],
    tokens: int,
    element: float,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    encoder_tokens: int = 0,
    state: float | None = None,
) -> int:
    """Bytes that one sequence of `tokens` tokens keeps on the fullest rank.

    `element` is the bytes of a cached element, `state` those of a recurrent state's (None: the same);
    `encoder_tokens` are what cross-attention layers keep once.
    """
    return fullest_stage(
        [layer_bytes(cache, tokens, element, tensor, encoder_tokens, state) for cache in caches], pipeline
    )


def layer_bytes(
    cache: LayerCache,
    tokens: int,
    element: float,
    tensor: int = 1,
    encoder_tokens: int = 0,
    state: float | None = None,
) -> int:
    """Bytes that one layer keeps of one sequence on one rank."""
    elements = cache.token_elements(tensor) * cache.kept(tokens) + -(-cache.cross // tensor) * encoder_tokens
    recurrent = -(-cache.recurrent // tensor) * (element if state is None else state)
    return round(elements * element + -(-cache.conv // tensor) * element + recurrent)


def fullest_stage(sizes: Sequence[int], pipeline: int) -> int:
    """The largest sum of ceil(n / pipeline) neighbouring layers."""
    if pipeline <= 1 or not sizes:
        return sum(sizes)
    span = -(-len(sizes) // pipeline)
    return max(sum(sizes[start : start + span]) for start in range(len(sizes) - span + 1))


def _encodes(stack: str) -> bool:
    return "encoder" in stack and "decoder" not in stack


def _layer_cache(model: Model, layer: int, tensors: list[Tensor]) -> LayerCache | None:
    """None for a layer that is no decoder layer (projections that exist once a layer of something else)."""
    shape = model.shape
    kind = shape.layer_types[layer] if layer < len(shape.layer_types) else "full_attention"
    convolved = {_parent(tensor) for tensor in tensors if tensor.role == "conv"}
    lightning = kind == "linear_attention" and not convolved
    state = _state(model, tensors) if convolved or lightning else LayerCache()
    keys = values = latent = cross = 0
    for tensor in tensors:
        if tensor.buffer or len(tensor.shape) < 2 or _parent(tensor) in convolved:
            continue
        rows = tensor.shape[0]
        if tensor.role in ("k", "v") and _crosses(tensor.name):
            cross += rows
        elif tensor.leaf == "kv_a_proj_with_mqa" or (tensor.leaf == "wk" and "indexer" in tensor.name):
            latent += rows
        elif tensor.role == "k":
            keys += rows
        elif tensor.role == "v":
            values += rows
        elif tensor.role == "qkv" and not lightning:
            keys = values = shape.kv_heads * shape.head_dim
    if not (keys or latent or cross or state.conv or state.recurrent):
        return LayerCache() if any(tensor.role in ("q", "down", "o") for tensor in tensors) else None
    values = values or keys
    heads = shape.kv_heads if shape.kv_heads and (keys + values) % shape.kv_heads == 0 else 1
    window = shape.windows[layer] if layer < len(shape.windows) else None
    return state._replace(
        heads=heads if keys else 0,
        head_elements=(keys + values) // heads,
        latent=latent,
        window=window,
        cross=cross,
    )


def _parent(tensor: Tensor) -> str:
    return tensor.module.rpartition(".")[0]


def _crosses(name: str) -> bool:
    return any(part in name for part in ("encoder_attn", "EncDecAttention", "cross_attn", "crossattention"))


def _state(model: Model, tensors: list[Tensor]) -> LayerCache:
    """Convolution and recurrent state of one layer."""
    found = {tensor.leaf: tensor.shape for tensor in tensors if len(tensor.shape) > 0}
    conv = next((t.shape for t in tensors if t.role == "conv" and len(t.shape) == 3), None)
    channels = conv[0] if conv else 0
    kept = conv[0] * conv[2] if conv else 0
    decay = found.get("A_log")
    recurrent = 0
    if decay is not None and len(decay) >= 2:
        recurrent = _product(decay)
    elif "in_proj" in found and decay is not None:
        inner = found["in_proj"][0] - channels - decay[0]
        recurrent = inner * int(_field(model, *_STATE_SIZE) or 0)
    elif "f_a_proj" in found and conv:
        recurrent = channels // 3 * found["f_a_proj"][0]
    elif decay is not None and conv:
        values = next((t.shape[1] for t in tensors if t.leaf in ("out_proj", "o_proj") and len(t.shape) == 2), 0)
        recurrent = values * int(_field(model, "linear_key_head_dim") or 0)
    elif conv is None and any(tensor.role == "qkv" for tensor in tensors):
        recurrent = model.shape.heads * model.shape.head_dim**2
    return LayerCache(conv=kept, recurrent=recurrent)


def _shared(model: Model, caches: list[LayerCache]) -> list[LayerCache]:
    """Layers whose weights are another's (hybrid blocks tied to the first) keep their own tokens all the same."""
    kinds = model.shape.layer_types
    hybrid = next((cache for cache, kind in zip(caches, kinds, strict=False) if kind == "hybrid" and cache.grows), None)
    if hybrid is None:
        return caches
    return [
        cache._replace(heads=hybrid.heads, head_elements=hybrid.head_elements)
        if index < len(kinds) and kinds[index] == "hybrid" and not cache.grows
        else cache
        for index, cache in enumerate(caches)
    ]


def _field(model: Model, *names: str) -> Any:
    """The first of several config fields that has a value, in the config, its text part or the class's defaults."""
    configs = [model.config, *(model.config.get(part) for part in ("text_config", "llm_config", "language_config"))]
    for config in configs:
        if isinstance(config, dict):
            for name in names:
                if config.get(name) is not None:
                    return config[name]
    from ..models.tables import find_table

    table = find_table(model.model_type) or {}
    defaults = table.get("defaults", {})
    return next((defaults[name] for name in names if defaults.get(name) is not None), None)


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size
