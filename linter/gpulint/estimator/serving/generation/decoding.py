"""What one layer takes beside the cache while it attends to all of it for one new token, from shapes alone.

b sequences, t tokens in the cache, nh query heads on nk key heads of dimension d, e bytes an element.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING

from ....models.arch_spec import arch_spec
from ....models.model import text_config
from ....upstream import transformers
from ....upstream.stack import Stack
from ....upstream.transformers import WINDOW_VIEWS_PROMPT
from ....upstream.transformers_models import FUSED_KEYS, FUSED_VALUES, REPEATED_KEYS
from ...frameworks.attention import attention_implementation, composite
from ...frameworks.frameworks import MIXER_PACKAGES
from ...frameworks.release import release
from ...states.tensor_parallel import fullest_layers, stages
from ...terms import Product, largest, terms, total
from ...unmodeled import mixing
from ..kv_cache import layer_bytes
from .prefill import score_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.arch_spec import ArchSpec
    from ....models.model import Model
    from ...terms import Count, Term
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
    package = MIXER_PACKAGES.get(mixer)
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


SOURCE = "transformers cache_utils.py DynamicCache"


class GrowingCache:
    """The dynamic cache of one rank: bytes for a batch of sequences."""

    def __init__(
        self,
        caches: Sequence[LayerCache],
        element: float,
        tensor: int,
        pipeline: int,
        expanded_elements: int,
        state: float,
    ) -> None:
        if expanded_elements:
            caches = [
                cache._replace(latent=0, heads=1, head_elements=expanded_elements) if cache.latent else cache
                for cache in caches
            ]
        self.caches = [cache._replace(window=cache.window - 1 if cache.window else None) for cache in caches]
        self.element, self.tensor, self.pipeline, self.state = element, tensor, pipeline, state

    def size(self, batch: int, tokens: int) -> int:
        """Bytes after `tokens` tokens; a sliding layer keeps its window less one (cache_utils.py)."""
        return total(self.terms(batch, tokens))

    def terms(self, batch: int, tokens: int) -> list[Term]:
        """The cache after `tokens` tokens, of each kind of layer of the fullest stage."""
        sizes = [self.layer(cache, batch, tokens) for cache in self.caches]
        stage = fullest_layers(sizes, self.pipeline)
        found = []
        for cache, number in Counter(self.caches[layer] for layer in stage).items():
            layers, rows = (number, "layers"), (batch, "rows")
            kept = (cache.kept(tokens), "tokens")
            once = -(-cache.cross // self.tensor) + -(-cache.conv // self.tensor) + cache.fixed
            states = -(-cache.recurrent // self.tensor)
            elements = cache.token_elements(self.tensor)
            made = (
                Product("keys and values", self.element, (layers, rows, kept, elements)),
                Product("what a layer keeps whatever the length", self.element, (layers, rows, once)),
                Product("recurrent states", self.state, (layers, rows, states)),
            )
            found += terms("kv_cache", made, SOURCE, number * self.layer(cache, batch, tokens))
        return found

    def unwindowed(self, job: Job) -> GrowingCache:
        """The cache behind the prompt's pass.

        From transformers 5 a sliding layer's window is a view of all the prompt's keys and values until its next
        token (cache_utils.py DynamicSlidingWindowLayer.update).
        """
        if not Stack(job).does(WINDOW_VIEWS_PROMPT):
            return self
        whole = copy(self)
        whole.caches = [cache._replace(window=None) for cache in self.caches]
        return whole

    def growing(self, batch: int, tokens: int) -> Product:
        """What exists twice while the largest layer gets a token: its keys; a sliding layer's keys and values."""
        widest = max(self.caches, key=lambda cache: self._grown(cache, batch, tokens).size, default=None)
        return _ANEW if widest is None else self._grown(widest, batch, tokens)

    def first(self, batch: int, tokens: int) -> Product:
        """What the first layer makes anew for the first token behind the prompt."""
        return self._grown(self.caches[0], batch, tokens) if self.caches else _ANEW

    def _grown(self, cache: LayerCache, batch: int, tokens: int) -> Product:
        halves = 1 if cache.window else 2
        size = self.layer(cache._replace(conv=0, recurrent=0, cross=0), batch, tokens) // halves
        counts = (batch, "rows"), (cache.kept(tokens), "tokens"), cache.token_elements(self.tensor) // halves
        made = _ANEW._replace(each=self.element, counts=counts)
        return made if made.size == size else _ANEW._replace(each=size)

    def layer(self, cache: LayerCache, batch: int, tokens: int) -> int:
        """Bytes of one layer."""
        return batch * layer_bytes(cache, tokens, self.element, self.tensor, self.state)


_ANEW = Product("keys of a layer, made anew with the new token", 0.0)


def views(job: Job, model: Model, batch: int, prompt: int, element: float) -> Product:
    """What a prompt's cache holds beyond keys and values, as views of one fused projection; nothing elsewhere.

    e b prompt q a layer where keys and values are views of it (`FUSED_KEYS`), e b prompt (q + k)
    where the values are and the keys are rotated (`fused_values`).
    """
    label, shape = "queries beside them, in one tensor", model.shape
    stack = Stack(job)
    keys, values = stack.does(FUSED_KEYS, model.model_type), stack.does(FUSED_VALUES, model.model_type)
    if not (keys or values) or job.parallelism.tensor > 1:
        return Product(label, 0.0)
    heads = shape.heads + (0 if keys else shape.kv_heads), "heads"
    layers, tokens = (shape.layers, "layers"), (prompt, "tokens")
    return Product(label, element, (layers, (batch, "rows"), tokens, heads, shape.head_dim), stages(job))
