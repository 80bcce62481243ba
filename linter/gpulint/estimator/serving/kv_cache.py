"""What a decoder keeps of the tokens it has seen, layer by layer.

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

DeepSeek V4's layers are in compressed_cache.py.

Sources: transformers 5.23 cache_utils.py and the models' forward; vLLM 0.33 v1/kv_cache_interface.py and
model_executor/layers/mamba/mamba_utils.py. Measured on small models of each family, with caches created by
transformers 5.23.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ...units import DTYPE_BYTES
from ...upstream.serving import sglang, vllm
from ...upstream.stack import Stack
from ..estimate import NotEstimable
from ..states.checkpoint import COMPRESSED, named_quantization, stated_quantization, stored_quantization
from ..states.tensor_parallel import fullest_stage
from ..terms import Product
from .layer_cache import LayerCache
from .pools import compressed_cache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Job
    from ...models.model import Model, Shape


_CACHE_DTYPES = {
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "float8": 1.0, "int8": 1.0, "int4": 0.5,
    "fp4_e2m1": 0.5625, "nvfp4": 0.5625, "nvfp4_4over6": 0.5625, "fp8_ds_mla": 1.0,
    "nvfp4_ds_mla": 0.5625,
    "int4_per_token_head": 0.5, "int8_per_token_head": 1.0, "fp8_per_token_head": 1.0,
}  # fmt: skip
"""fp4_e2m1 and nvfp4 have a scale of one byte for 16 elements (vllm 0.33 utils/torch_utils.py
`nvfp4_kv_cache_full_dim`). What the two of DeepSeek pack into a latent is in vllm/weights.py."""

_HEAD_SCALE = 4
"""Bytes of the scale of each key and each value of a head in `*_per_token_head` (vllm v1/attention/backends/
triton_attn.py)."""


_ENCODERS = frozenset(
    (
        "albert", "bert", "big_bird", "camembert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra",
        "ernie", "eurobert", "hubert", "modernbert", "mpnet", "nomic_bert", "rembert", "roberta", "roc_bert",
        "roformer", "vit", "wav2vec2", "xlm-roberta", "xlm-roberta-xl", "xmod",
    )
)  # fmt: skip
"""Model types that read a sequence at once, unless their config says `is_decoder`."""


def caches_nothing(model: Model) -> bool:
    """Whether no layer keeps anything of a request: an encoder, whose one pass is the answer."""
    return all(cache == LayerCache() for cache in layer_caches(model))


def layer_caches(model: Model) -> tuple[LayerCache, ...]:
    """The cache of every decoder layer, first to last, from the model's dimensions; empty ones in an encoder."""
    if model.model_type in _ENCODERS and not model.config.get("is_decoder"):
        return (LayerCache(),) * model.shape.layers
    layers = range(model.shape.layers)
    if compressed_cache.compresses(model.shape):
        kept = [compressed_cache.elements(model, layer) for layer in layers]
        return tuple(LayerCache(latent=token, fixed=sequence) for token, sequence in kept)
    return tuple(_layer_cache(model.shape, layer) for layer in layers)


def lenders(model: Model) -> dict[int, int]:
    """The layer whose cache each of the layers that keep none of their own reads (Gemma 3n and 4).

    It is the last one before them all with the same window (transformers modeling_gemma3n.py, modeling_gemma4.py
    `kv_shared_layer_index`).
    """
    if not model.model_type.startswith(SHARING):
        return {}
    found: dict[int, int] = {}
    last: dict[int | None, int] = {}
    for layer, cache in enumerate(layer_caches(model)):
        if cache.grows:
            last[cache.window] = layer
        elif cache.window in last:
            found[layer] = last[cache.window]
    return found


SHARING = ("gemma3n", "gemma4")
"""Model types whose last layers may read the cache of earlier ones."""


def cache_bytes(dtype: str | None, weights_dtype: str, head: int = 0) -> float:
    """Bytes of one cached element for a `kv_cache_dtype`; `auto` and None follow the model's dtype.

    `head` is the elements of key and value of one head, over which the scales of a head are spread.
    Raises NotEstimable for a dtype whose width is not known: TurboQuant and others keep some layers in 16 bits.
    """
    name = (dtype or "auto").lower()
    if name == "auto":
        return max(DTYPE_BYTES[weights_dtype], 2.0)
    width = _CACHE_DTYPES.get(name, DTYPE_BYTES.get(name))
    if width is None:
        raise NotEstimable(f"the size of a KV cache of dtype {name} is not known")
    return width + 2 * _HEAD_SCALE / head if head and name.endswith("_per_token_head") else width


def bytes_per_token(caches: Iterable[LayerCache], element: float, tensor: int = 1, pipeline: int = 1) -> int:
    """Bytes that one more token adds on the fullest rank while every window still has room."""
    return fullest_stage([round(cache.token_elements(tensor) * element) for cache in caches], pipeline)


def token_products(
    caches: Iterable[LayerCache], element: float, tensor: int = 1, pipeline: int = 1
) -> tuple[Product, ...]:
    """The same as products, one for each kind of layer; of a pipeline's stage where all layers are alike."""
    kinds = Counter((-(-cache.heads // tensor), cache.head_elements, cache.latent) for cache in caches if cache.grows)
    found = []
    for (heads, elements, latent), number in kinds.items():
        layers = (-(-number // pipeline), "layers")
        found.append(Product("keys and values", element, (layers, (heads, "heads"), elements)))
        found.append(Product("latents", element, (layers, latent)))
    return tuple(found)


def sequence_bytes(
    caches: Iterable[LayerCache],
    tokens: int,
    element: float,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    state: float | None = None,
) -> int:
    """Bytes that one sequence of `tokens` tokens keeps on the fullest rank.

    `element` is the bytes of a cached element, `state` those of a recurrent state's (None: the same).
    """
    return fullest_stage([layer_bytes(cache, tokens, element, tensor, state) for cache in caches], pipeline)


def layer_bytes(cache: LayerCache, tokens: int, element: float, tensor: int = 1, state: float | None = None) -> int:
    """Bytes that one layer keeps of one sequence on one rank."""
    elements = cache.token_elements(tensor) * cache.kept(tokens)
    constant = -(-cache.cross // tensor) + -(-cache.conv // tensor) + cache.fixed
    recurrent = -(-cache.recurrent // tensor) * (element if state is None else state)
    return round((elements + constant) * element + recurrent)


def _layer_cache(shape: Shape, layer: int) -> LayerCache:
    plain = shape.kv_heads * (shape.head_dim + shape.v_head_dim)
    elements = _at(shape.kv_elements, layer, plain)
    heads = max(1, _at(shape.layer_kv_heads, layer, shape.kv_heads))
    if elements % heads:
        heads = 1
    latent = elements if shape.kv_lora_rank and elements == shape.kv_lora_rank + shape.qk_rope_head_dim else 0
    indexer = shape.index_head_dim if layer in shape.indexer_layers else 0
    return LayerCache(
        heads=0 if latent or not elements else heads,
        head_elements=0 if latent else elements // heads,
        latent=latent + indexer,
        window=shape.windows[layer] if layer < len(shape.windows) else None,
        conv=_at(shape.conv_states, layer, 0),
        recurrent=_at(shape.recurrent_states, layer, 0),
        cross=plain * shape.cross_tokens if layer in shape.cross_layers else 0,
    )


def _at(values: tuple[int, ...], layer: int, unknown: int) -> int:
    """The entry of a layer; `unknown` where the dimensions do not say it layer by layer."""
    return values[layer] if layer < len(values) else unknown


FP8_BITS = 8


def cache_dtype(job: Job, model: Model) -> str | None:
    """The job's `kv_cache_dtype`; where that is `auto`, fp8 for a checkpoint that states 8-bit floats for the cache.

    Model Optimizer states a `kv_cache_scheme`, or `kv_cache_quant_algo` in older files; compressed-tensors any scheme,
    which can be 8-bit floats alone. 4-bit schemes are left at `auto`, and so is SGLang's sparse attention, whose dtype
    is set before (srt/server_args.py `_set_default_nsa_kv_cache_dtype`).
    """
    given = job.serving
    dtype = given.kv_cache_dtype
    config = stated_quantization(model)
    if given.engine == "sglang" and model.shape.index_head_dim:
        return dtype
    if (dtype or "auto").lower() != "auto" or config is None:
        return dtype
    method, stack = str(config.get("quant_method", "")).lower(), Stack(job)
    if method.startswith("modelopt") and _reads_modelopt(stack) and _stated_fp8(config):
        return "fp8"
    compressed = method in COMPRESSED and config.get("kv_cache_scheme") is not None
    return "fp8" if compressed and stack.does(vllm.READS_COMPRESSED) else dtype


def fp8_perhaps(job: Job, model: Model) -> bool:
    """Whether the cache may be fp8 and nothing at hand says so: an NVFP4 checkpoint known by its name alone.

    Those that Model Optimizer writes state it as a rule, those of llm-compressor as a rule do not.
    """
    given = job.serving
    if (given.kv_cache_dtype or "auto").lower() != "auto" or stored_quantization(model) is not None:
        return False
    named = named_quantization(job, model)
    return named is not None and named.method == "nvfp4" and _reads_modelopt(Stack(job))


def _reads_modelopt(stack: Stack) -> bool:
    return stack.does(vllm.READS_MODELOPT) or stack.does(sglang.READS_MODELOPT)


def _stated_fp8(config: dict[str, Any]) -> bool:
    inner = config.get("quantization")
    for part in (inner if isinstance(inner, dict) else config, config):
        scheme = part.get("kv_cache_scheme")
        if isinstance(scheme, dict) and scheme:
            fixed = scheme.get("dynamic") is False
            return fixed and scheme.get("num_bits") == FP8_BITS and scheme.get("type") == "float"
    for part in (inner if isinstance(inner, dict) else config, config):
        if algorithm := part.get("kv_cache_quant_algo"):
            return str(algorithm).upper() == "FP8"
    return False
