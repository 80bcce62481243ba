"""What one layer takes beside the cache while it attends to all of it for one new token, from shapes alone.

b sequences, t tokens in the cache, nh query heads on nk key heads of dimension d, e bytes an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....models.arch_spec import arch_spec
from ....models.model import text_config
from ....upstream import transformers
from ....upstream.stack import Stack
from ....upstream.transformers_models import REPEATED_KEYS
from ...frameworks import kernels
from ...frameworks.attention import attention_implementation, composite
from ...frameworks.release import release
from ...terms import Product, largest
from ...unmodeled import mixing
from .prefill import score_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.arch_spec import ArchSpec
    from ....models.model import Model
    from ...terms import Count
    from ..layer_cache import LayerCache


def attended(job: Job, model: Model, batch: int, tokens: int, element: float) -> Sequence[Product]:
    """The widest layer's attention to `tokens` tokens: keys and values made anew, and scores.

    Eager attention, sdpa with a mask (padding, or a window that is full) or before 4.54, and flash attention in the
    classes that `REPEATED_KEYS` names repeat grouped keys and values: e b t nh (dk + dv); a
    single key head is expanded within each product, e b t nh d, where there are several sequences (`repeat_kv`).
    Eager scores take `score_bytes` each, and GPT-J and GPT-Neo take float32 keys for them, 4 b t nh d. torch's
    composite attention, which sdpa takes for keys that nobody repeats under a mask (Falcon), has float32 copies of
    keys and values and scaled keys, 12 b t nk d, and lays the keys out for every head where there are several
    sequences, 4 b t nh d. It repeats grouped float32 keys and values itself and scales those keys beside them, 12 b
    t nh d (aten native/transformers/attention.cpp `_scaled_dot_product_attention_math`). On GPUs before Ampere it
    takes the composite one too (`composite`), with those copies and grouped keys and values repeated in float32, 12
    b t nh d and of k and v 8 b t nk d; before torch 2.5 it kept the width. Layers that attend to images alone:
    `crossing`.
    """
    shape, tensor = model.shape, job.parallelism.tensor
    config = {**model.defaults, **text_config(model.config)}
    found = arch_spec(model.model_type, config, shape.norm)
    kind = attention_implementation(job, model, found, config)
    opened = opened_latent(job, model, batch, tokens, element, laid=kind == "eager" and batch > 1)
    repeats = _repeats(job, model, kind)
    if not repeats and kind != "sdpa":
        return opened
    packs = Stack(job).does(transformers.PACKED_QUERIES)
    widest: Sequence[Product] = opened
    for layer, window in enumerate(shape.windows):
        heads, keys = _heads(model, layer)
        if layer in crossed(model):
            widest = largest(widest, crossing(job, model, kind, batch, element))
            continue
        if not keys:
            continue
        keys = heads if found.qkv == "grouped" else keys
        seen = (batch, "rows"), (min(tokens, window or tokens), "tokens")
        dim = _at(shape.layer_head_dims, layer, shape.head_dim)
        scores = _scores(job, model, found, seen, heads, dim, element) if kind == "eager" else []
        copies = Product(REPEATED, element, (*seen, (_repeated(heads, keys, batch), "heads"), dim), tensor)
        old = composite(job, heads != keys, not repeats, element) if kind == "sdpa" and element <= 2 else ""
        made: list[Product] = []
        if shape.kv_lora_rank:
            made = [*opened, *scores]
        elif old:
            wide, copied = (element if old == "narrow math" else 4.0), heads != keys and not repeats
            laid = 3 * heads + (2 * keys if copied else 0)
            made = [copies] if repeats else []
            made.append(Product(COPIED, wide, (*seen, (laid, "heads"), dim), tensor))
        elif repeats:
            made = [*scores, copies]
        elif found.direct and found.masked and heads != keys:
            laid = 3 * keys + (heads if batch > 1 else 0)
            made = [Product(COPIED, 4.0, (*seen, (laid, "heads"), dim), tensor)]
        elif not found.direct and heads != keys and window is not None and tokens >= window:
            made = [] if packs else [copies]
        elif not found.direct and heads != keys and element > 2 and not job.padded:
            made = [Product(COPIED, 12.0, (*seen, (heads, "heads"), dim), tensor)]
        widest = largest(widest, made)
    return widest


REPEATED, COPIED = "keys and values of a layer, repeated for all heads", "copies of a layer's queries, keys and values"


def _scores(
    job: Job, model: Model, found: ArchSpec, seen: tuple[Count, ...], heads: int, dim: int, element: float
) -> list[Product]:
    """Eager attention's scores of one new token, and the float32 keys that GPT-J and GPT-Neo take for them."""
    counts, tensor = (*seen, (heads, "heads")), job.parallelism.tensor
    scores = [Product("scores and their softmax", score_bytes(job, model), counts, tensor)]
    if found.scores == "upcast" and element < 4:
        scores.append(Product("keys in float32", 4.0, (*counts, dim), tensor))
    return scores


def crossed(model: Model) -> frozenset[int]:
    """The layers that attend to images alone, whose keys and values no token adds to."""
    return frozenset(() if model.shape.encoder_layers else model.shape.cross_layers)


def crossing(job: Job, model: Model, kind: str, batch: int, element: float) -> list[Product]:
    """A layer's attention to the t positions of a prompt's images, for one new token.

    They are under a mask, so that sdpa and eager repeat grouped keys: 2 e b t nh d, and eager has its scores. Under
    `REPEATED_CROSS_KEYS` eager's are repeated in the cache, and sdpa norms them in float32, 8 b t nh d more.
    """
    shape, old = model.shape, Stack(job).does(transformers.REPEATED_CROSS_KEYS)
    positions, tensor = (shape.cross_tokens, "positions"), job.parallelism.tensor
    seen = (batch, "rows"), (job.images or 0, "images"), positions, (shape.heads, "heads")
    grouped = shape.heads != shape.kv_heads
    copies = Product(REPEATED, 2 * element if grouped else 0.0, (*seen, shape.head_dim), tensor)
    if kind == "eager":
        scores = Product("scores and their softmax", score_bytes(job, model), seen, tensor)
        return [scores] if old else [scores, copies]
    normed = Product("the repeated keys, normed in float32", 8.0, (*seen, shape.head_dim), tensor)
    return [copies, normed] if old else [copies]


def image_caches(caches: Sequence[LayerCache], job: Job, model: Model) -> list[LayerCache]:
    """The caches with keys and values of images where layers attend to those alone: none of text, all of each image.

    Source: transformers 5.23 modeling_mllama.py MllamaTextModel.forward, MllamaTextCrossAttention.
    """
    if not crossed(model):
        return list(caches)
    config = {**model.defaults, **text_config(model.config)}
    found = arch_spec(model.model_type, config, model.shape.norm)
    eager = attention_implementation(job, model, found, config) == "eager"
    repeated = eager and Stack(job).does(transformers.REPEATED_CROSS_KEYS)
    each = (job.images or 0) * (model.shape.heads // model.shape.kv_heads if repeated else 1)
    return [
        cache._replace(heads=0, cross=cache.cross * each) if layer in crossed(model) else cache
        for layer, cache in enumerate(caches)
    ]


def _repeats(job: Job, model: Model, kind: str) -> bool:
    """Whether attention copies grouped keys and values for every query head; flash attention in some classes did."""
    if kind == "flash_attention_2":
        return Stack(job).does(REPEATED_KEYS, model.model_type)
    masked = bool(job.padded) and not Stack(job).does(transformers.PACKED_QUERIES)
    return kind == "eager" or (kind == "sdpa" and (masked or not release(job, model.model_type).grouped_keys))


def cached_heads(model: Model) -> int:
    """Key heads of a layer's cache where the model repeats them before it keeps them, else 0.

    Source: transformers modeling_falcon.py `_split_heads` of the new decoder architecture.
    """
    found = arch_spec(model.model_type, {**model.defaults, **text_config(model.config)}, model.shape.norm)
    return model.shape.heads if found.qkv == "grouped" else 0


DELTAS = frozenset({"delta", "kimi_delta"})


def stepped(job: Job, model: Model, batch: int, element: float) -> tuple[Product, ...]:
    """The widest layer's state for one new token, b N elements of it, where no package's kernels run.

    mamba2   float32 decay, decayed state and new state, and in the width of the weights dB and dB x: (12 + 2 e) b N
             (transformers 5.23 modeling_bamba.py `mamba2_selective_state_update`)
    mamba    float32 decay, dB and dB x, and the decayed state beside a float32 copy of the state or the new one:
             20 b N (5.23 modeling_mamba.py `mamba_selective_state_update`)
    delta    float32 decayed state, the outer product that is added to it, and the sum: 12 b N (5.23
             modeling_qwen3_next.py `torch_recurrent_gated_delta_rule`, modeling_kimi_linear.py
             `recurrent_kimi_delta_attention`)
    """
    mixer = mixing(model)
    package = kernels.MIXERS.get(mixer)
    if package is not None and Stack(job).runs(package):
        return ()
    each = {"mamba2": 12 + 2 * element, "mamba2_scaled": 12 + 2 * element, "mamba": 20.0}.get(mixer, 0.0)
    each = 12.0 if mixer in DELTAS else each
    states = max(model.shape.recurrent_states, default=0)
    counts = (batch, "rows"), (states, "elements")
    return (Product("a layer's state, decayed and added to", each, counts, job.parallelism.tensor),)


def opened_latent(
    job: Job, model: Model, batch: int, tokens: int, element: float, *, laid: bool = False
) -> tuple[Product, ...]:
    """Latent attention from transformers 5 on: keys and values of all heads made from the cache in every step.

    The projection to keys and values, and the keys joined with their rotary part:
    e b tokens heads (2 qk_nope + qk_rope + v) (modeling_deepseek_v3.py). Where the values are `laid` out for a batched
    product of several sequences, v more.
    """
    shape = model.shape
    if not shape.kv_lora_rank or not Stack(job).does(transformers.CACHED_LATENT):
        return ()
    width = 2 * shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim * (2 if laid else 1)
    counts = (batch, "rows"), (tokens, "tokens"), (shape.heads, "heads"), width
    return (Product("keys and values of a layer, made from the latent", element, counts, job.parallelism.tensor),)


def _repeated(heads: int, keys: int, batch: int) -> int:
    """Heads of which keys or values are made anew at a time."""
    if heads == keys:
        return 0
    return 2 * heads if keys > 1 else heads * (batch > 1)


def _heads(model: Model, layer: int) -> tuple[int, int]:
    """Query and key heads of a layer; (0, 0) where it does not attend."""
    shape = model.shape
    return _at(shape.layer_heads, layer, shape.heads), _at(shape.layer_kv_heads, layer, shape.kv_heads)


def _at(values: tuple[int, ...], layer: int, unknown: int) -> int:
    return values[layer] if layer < len(values) else unknown
