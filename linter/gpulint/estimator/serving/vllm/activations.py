"""The peak of vLLM's profile run: a full batch through the layers, then the sampler over a full set of requests.

T tokens of a batch (max_num_batched_tokens), R requests (max_num_seqs, or fewer), e bytes of an element, h hidden size,
q and k widths of queries and keys, f MLP width, K experts a token, V vocabulary, t tensor-parallel ranks.

    layers    e T (3 h + max((2 q + 2 k) / t, 3 f / t)), plain MLP 2 f
    experts   e (T 4 h + min(d T, 32768) K (max(2 f / x, w) + f / x)), w the experts' input width (h, or a latent one),
              x the ranks that share an expert, d data-parallel ones, whose tokens are gathered: e T (2 + d) h then;
              from 0.15 on e T 4 h beside the workspace (vllm/workspace.py). With DeepGEMM, which widens the interval,
              both buffers are of the larger width, an 8-bit copy of the rows and the output lie beside them
    sampler   e T h + 2 e R h + V R (2 to 38 B by version)
    pooler    e T h + 8 R h, or of every token e T h + 8 T h, which widens the interval
    V4        e T ((s + 1) h + 2 p D + n D + 2 (D + L) + I) + 8 T c (D + i): s hidden streams, n heads of the rank and
              p as FlashMLA wants them (64 or 128), D their width, L the query latent, I the indexer's queries, i its
              key, c 2 (DeepSeek V4: 0.22 models/deepseek_v4/attention.py)

What the workspace keeps is there beside the layers and beside the sampler.

vLLM's kernels write the residual in place and fuse the activation, so a layer holds its residual, its input and its
output (3 h) and the MLP its doubled projection and their product (3 f). Before all this the largest item goes through
a vision tower, and stays with what it became (vllm/encoder.py); other towers, and audio, only widen the interval.
Source: vllm/v1/worker/gpu_model_runner.py `profile_run`, `_dummy_sampler_run`, `_dummy_pooler_run` (0.12);
model_executor/models/llama.py.

What torch's allocator holds after the profile run of the vLLM releases that ask the driver for it.

Until 0.6.3 the profile run counts as the free memory before the model less that after the run, without an
`empty_cache` in between: every segment that the run opened counts, whether it is in use at the peak or not.
Source: vllm 0.2.5 to 0.6.3.post1 worker/worker.py `determine_num_available_blocks`; model_executor/models/llama.py.

What lies on the GPU while vLLM compiles a model that it finds no compiled form of.

vLLM hands each piece of a model to Inductor's `standalone_compile`, which runs every kernel on random tensors as large
as all that it reads and writes (`autotune_at_compile_time`: torch/_inductor/standalone_compile.py, codegen/wrapper.py
`generate_example_value`; torch 2.9 to 2.14). The first kernel of the first piece reads the embedding. All this is
inside the profile run, whose peak vLLM takes off the cache, so that a first start gets a smaller cache than later ones,
which find the compiled model (vllm issues 54122 and 54383).

    one GPU     e (V h + 2 T h)     e bytes of an element, V padded vocabulary, h hidden size, T tokens of a batch:
                                    the embedding, hidden states and their norm, which one kernel makes
    t ranks     e (V h / t + T h)   the norm comes after the ranks' sum

A model that is given embeddings, as vLLM's multimodal ones are, compiles none. The tensors of other kernels are smaller
than what the profile run has of its own.
Source: VLLM_USE_STANDALONE_COMPILE (`tries_kernels` in vllm.json), v1/worker/gpu_worker.py
`determine_available_memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....upstream.serving.vllm import COUNTS_SEGMENTS, SPLITS_NO_LARGE_BLOCK
from ...allocator.allocator import Allocator, segments
from ...terms import Product, largest, line, of, terms, total
from ..pools.compressed_cache import compresses
from .encoder import encoder
from .items import items, requests_profiled
from .profile import sampler
from .settings import takes_items
from .workspace import NONE, ROWS, expert_bytes, expert_width, streams, workspace
from .workspace import SOURCE as WORKSPACE_SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....models.model import Model
    from ...allocator.allocator import Policy
    from ...terms import Count, Term
    from .profile import Sampler
    from .settings import Settings


SOURCE, ENCODER_SOURCE = "estimator/serving/vllm/activations.py", "estimator/serving/vllm/encoder.py"

_VOCABULARY_PADDING = 64
"""model_executor/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE"""

_EXPERT_CHUNK = 32768
"""Tokens that the fused kernels route at once (vllm/envs.py VLLM_FUSED_MOE_CHUNK_SIZE)."""

_FLOAT32 = 4.0
"""Bytes of an element that is pooled (config/pooler.py `head_dtype`)."""

_MERGED_PATCHES = 4
"""Patches that a vision encoder reads for each token it gives the decoder (2 x 2 merging)."""


class ProfileRun(NamedTuple):
    """What is on top of the weights at the peak of the profile run, and the interval around its sum.

    `passing` is gone after the run: what passes through the text model or the vision tower, and the logits. `kept`, the
    workspace, stays.
    """

    passing: tuple[Term, ...]
    kept: tuple[Term, ...]
    low: int
    high: int

    @property
    def terms(self) -> tuple[Term, ...]:
        """All of it."""
        return (*self.passing, *self.kept)

    @property
    def activations(self) -> int:
        """Bytes of activations, the workspace among them."""
        return of("activations", self.terms)

    @property
    def workspace(self) -> int:
        """Bytes that stay."""
        return total(self.kept)

    @property
    def total(self) -> int:
        """Activations and logits together."""
        return total(self.terms)


def profile_run(
    model: Model,
    settings: Settings,
    element: float,
    tensor: int,
    experts: int | None = None,
    data: int = 1,
    copied: int = 0,
) -> ProfileRun:
    """The larger of the text model's peak and the vision tower's on one rank.

    `experts` ranks share an expert's features, and the tokens of `data` ranks pass through the experts of each
    (layers/fused_moe/layer.py `forward_impl`). `copied` bytes of weights are there while a layer runs. At the least no
    item counts: a checkpoint's own preprocessor may cut them to any size.
    """
    text = _text_run(model, settings, element, tensor, experts, data, copied)
    seen = encoder(model, settings, element, tensor)
    if seen is None:
        return text
    high = max(text.high + seen.kept, seen.high)
    if seen.peak <= text.total + seen.kept:
        staying = terms("activations", seen.staying, ENCODER_SOURCE)
        return text._replace(passing=(*text.passing, *staying), high=high)
    running = terms("activations", seen.running, ENCODER_SOURCE)
    if text.kept:
        running.append(line("activations", -text.workspace, "the workspace, which the tower runs before"))
    return text._replace(passing=tuple(running), high=high)


def _text_run(
    model: Model, settings: Settings, element: float, tensor: int, experts: int | None, data: int, copied: int
) -> ProfileRun:
    """The larger of the layers' and the sampler's peak, with the bound of a tower that is not derived."""
    tokens, shared = settings.max_num_batched_tokens, experts or tensor
    requests = requests_profiled(model, settings)
    kept = workspace(model, tokens, settings.max_model_len, element, shared) if settings.profile.moe_workspace else NONE
    gathered = 1 if settings.profile.moe_workspace else data
    widest = layer_products(model, tokens, element, tensor, 0 if settings.profile.moe_workspace else shared, gathered)
    passing = (*widest, Product("weights of a layer from main memory", copied))
    layers, stream = total(passing), model.shape.hidden
    width, last = (_FLOAT32, "pooled") if settings.pools else (element, "last token")
    sampled = (
        Product("hidden states of all tokens", element, ((tokens, "tokens"), stream)),
        Product(f"hidden states of each request's {last}, twice", width, (2, (requests, "requests"), stream)),
    )
    hidden, samplers = total(sampled), settings.samplers
    sampler, less, most = (hidden + total(sampling(each, requests, model)) for each in samplers)
    least = min(less, sampler)
    if settings.pools:
        most += round(2 * _FLOAT32 * tokens * stream)
    bound = _bound(model, settings, element)
    padded = _padded(model, tokens, element, shared, gathered) if gathered > 1 else 0
    high = max(layers + round(2 * element * tokens * stream), padded, most) + bound + kept.high
    stays = tuple(terms("activations", kept.products, WORKSPACE_SOURCE))
    if layers >= sampler:
        compiled = layers - round(element * tokens * stream)
        low = max(compiled, least) + kept.low
        return ProfileRun(tuple(terms("activations", passing, SOURCE)), stays, low, high)
    low = max(least, min(layers, sampler)) + kept.low
    scored = terms("logits", sampling(samplers.runs, requests, model), samplers.runs.source)
    made = *scored, *terms("activations", sampled, SOURCE)
    return ProfileRun(made, stays, low, high)


def sampling(sampler: Sampler, requests: int, model: Model) -> tuple[Product, ...]:
    """What a sampler takes where it is widest."""
    counts = (requests, "requests"), padded_vocabulary(model)
    return (Product("the sampler, padded vocabulary", sampler.bytes, counts),)


def _bound(model: Model, settings: Settings, element: float) -> int:
    """Bytes that a tower may take which is not derived."""
    if not settings.sees or items(model, settings) is not None:
        return 0
    tokens = settings.max_num_batched_tokens
    requests = min(settings.max_num_seqs, tokens)
    return max(encoder_bytes(model, tokens, element), cross_encoder_bytes(model, requests, element))


def layer_products(
    model: Model, tokens: int, element: float, tensor: int, experts: int | None = None, data: int = 1
) -> tuple[Product, ...]:
    """What is alive in the widest layer. `experts` ranks share an expert's features; 0: its buffers are not counted.

    The experts get the tokens of `data` ranks.
    """
    shape, batch = model.shape, (tokens, "tokens")
    stream = Product("residual, input and output of the layer", element, (batch, 3, shape.hidden))
    candidates = [(stream, *_attention(model, batch, element, tensor))]
    if len(shape.sparse_layers) < shape.layers:
        label, copies = ("gate, up and their product", 3) if shape.mlp == "gated" else ("the MLP's inner states", 2)
        candidates.append((stream, Product(label, element, (batch, copies, shape.intermediate), tensor)))
    if shape.experts:
        passing = 2 + data if data > 1 else 4
        around = Product("input and output of the experts and around them", element, (batch, passing, shape.hidden))
        candidates.append((around, *_routed(model, tokens, element, tensor if experts is None else experts, data)))
    if compresses(shape):
        candidates.append(_compressed(model, batch, element, tensor))
    return tuple(largest(*candidates))


def layer_bytes(
    model: Model, tokens: int, element: float, tensor: int, experts: int | None = None, data: int = 1
) -> int:
    """The bytes of `layer_products`."""
    return total(layer_products(model, tokens, element, tensor, experts, data))


def _attention(model: Model, batch: Count, element: float, tensor: int) -> tuple[Product, ...]:
    shape = model.shape
    if not shape.kv_lora_rank:
        heads = (shape.heads + shape.kv_heads, "heads")
        label = "queries with the output, keys and values"
        return (Product(label, element, (batch, 2, heads, shape.head_dim), tensor),)
    key = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    per_head = 2 * key + shape.qk_nope_head_dim + 2 * shape.v_head_dim
    return (
        Product("queries, keys, values and output", element, (batch, (shape.heads, "heads"), per_head), tensor),
        Product("latent and rotary key", element, (batch, shape.kv_lora_rank + shape.qk_rope_head_dim)),
    )


def _routed(model: Model, tokens: int, element: float, experts: int, data: int) -> tuple[Product, ...]:
    """The fused experts' buffers; none where they are the workspace's."""
    if not experts:
        return ()
    routed = (min(data * tokens, _EXPERT_CHUNK), "tokens"), (model.shape.experts_per_token, "experts")
    shape, width = model.shape, expert_width(model)
    copies = 2 if shape.mlp == "gated" else 1
    inner = Product("experts' projections", element, (*routed, copies, shape.moe_intermediate), experts)
    outer = Product("experts' rows", element, (*routed, width))
    first = inner if copies * shape.moe_intermediate / experts > width else outer
    return first, Product("experts' inner states", element, (*routed, shape.moe_intermediate), experts)


def _padded(model: Model, tokens: int, element: float, experts: int, data: int) -> int:
    """Bytes of a layer whose experts DeepGEMM computes: workspaces, 8-bit rows, gathered tokens and their output."""
    shape = model.shape
    if not shape.experts:
        return 0
    rows = min(data * tokens, _EXPERT_CHUNK) * shape.experts_per_token + shape.experts // data * (ROWS - 1)
    passing = element * tokens * (2 + 2 * data) * shape.hidden
    return round(expert_bytes(model, rows, element, experts) + rows * expert_width(model) + passing)


def _compressed(model: Model, batch: Count, element: float, tensor: int) -> tuple[Product, ...]:
    """DeepSeek V4's attention: streams, padded queries and output, compressors' scores."""
    shape, config = model.shape, model.config
    heads = -(-shape.heads // tensor)
    padded = next(size for size in (64, 128, heads) if size >= heads)
    latent = shape.head_dim + (config.get("q_lora_rank") or 0)
    index = shape.index_head_dim or 0
    scores = Product("compressors' scores", 4, (batch, 2 * _OVERLAP, shape.head_dim + index))
    return (
        Product("hidden streams", element, (batch, streams(model) + 1, shape.hidden)),
        Product("padded queries and output", element, (batch, 2, (padded, "heads"), shape.head_dim)),
        Product("queries", element, (batch, (heads if padded > heads else 0, "heads"), shape.head_dim)),
        Product("latents", element, (batch, 2, latent)),
        Product("the indexer's queries", element, (batch, (config.get("index_n_heads") or 0, "heads"), index)),
        scores,
    )


_OVERLAP = 2
"""Neighbouring entries of the layers that compress by 4 overlap, so that each score is there twice."""


def padded_vocabulary(model: Model) -> int:
    """The vocabulary as vLLM pads it, to a multiple of 64."""
    return -(-model.shape.vocabulary // _VOCABULARY_PADDING) * _VOCABULARY_PADDING


def encoder_bytes(model: Model, tokens: int, element: float) -> int:
    """Bytes that a vision encoder may take while it reads the patches behind `tokens` tokens; 0 without one."""
    config = model.config.get("vision_config")
    if not isinstance(config, dict) or not any(tensor.role == "vision" for tensor in model.tensors):
        return 0
    hidden = config.get("hidden_size") or config.get("embed_dim") or 0
    inner = config.get("intermediate_size") or 4 * hidden
    return round(element * tokens * _MERGED_PATCHES * (4 * hidden + 3 * inner))


def cross_encoder_bytes(model: Model, requests: int, element: float) -> int:
    """Bytes that an encoder behind cross-attention may take when every request brings its image (Mllama); 0 without.

    P positions of all tiles, padded to a multiple of 8 in each, h and f the encoder's widths, n layers whose outputs it
    returns: e P (2 n h + 3 h + 2 f) and, for each request, a mask of the square of its positions.
    Source: vllm 0.6.6 model_executor/models/mllama.py MllamaVisionModel, worker/enc_dec_model_runner.py `profile_run`.
    """
    config = model.config.get("vision_config")
    if not model.shape.cross_layers or not isinstance(config, dict):
        return 0
    tiles = int(config.get("max_num_tiles") or 1)
    own = tiles * (-(-(model.shape.cross_tokens // tiles) // 8) * 8)
    hidden, inner = config.get("hidden_size") or 0, config.get("intermediate_size") or 0
    kept = len(config.get("intermediate_layers_indices") or ())
    return round(element * requests * (own * ((2 * kept + 3) * hidden + 2 * inner) + own * own))


_LAYERS = 3
"""Layers after which no further one opens a segment: each asks for the sizes of the one before."""


def reserved_run(model: Model, settings: Settings, element: float, tensor: int, rules: Policy) -> int | None:
    """Bytes that the eager run of a dense model reserves on one rank; None for experts and latent attention.

    Each layer makes, in this order: queries, keys and values, attention's output, its projection, the MLP's doubled
    projection, their product and its projection. What a function was given lives until it returns. Where the release
    lets NCCL's stream hold what it reduces, and the host runs ahead of the card, none of the two sums of a layer is
    free again before the run ends (torch record_stream; TORCH_NCCL_AVOID_RECORD_STREAMS=1 since 0.2.7).
    """
    shape = model.shape
    if shape.experts or shape.kv_lora_rank or any(shape.recurrent_states):
        return None
    memory = Allocator(policy=rules)
    each = element * settings.max_num_batched_tokens
    hidden = round(each * shape.hidden)
    queries = round(each * shape.heads * shape.head_dim / tensor)
    keys = round(each * shape.kv_heads * shape.head_dim / tensor)
    inner = round(each * shape.intermediate / tensor)
    wide = 2 * inner if shape.mlp == "gated" else inner
    residual, normed = memory.take(hidden), memory.take(hidden)
    for _ in range(_LAYERS):
        projected = memory.take(queries + 2 * keys)
        attended = memory.take(queries)
        output = memory.take(hidden)
        for block in (projected, attended, normed):
            memory.give(block)
        doubled = memory.take(wide)
        product = memory.take(inner)
        normed = memory.take(hidden)
        for block in (doubled, product, output):
            memory.give(block)
    memory.give(residual)
    requests = requests_profiled(model, settings)
    logits = requests * padded_vocabulary(model)
    for size in sampler("sort").blocks:
        memory.take(logits * size)
    held = 2 * (shape.layers - 1) * hidden if settings.profile.sums_held and tensor > 1 else 0
    return memory.reserved + held


def compiling(model: Model, settings: Settings, element: float, tensor: int) -> tuple[Product, ...]:
    """The tensors of the kernel that reads the embedding; none where nothing or no embedding is compiled."""
    compiles = settings.profile.tries_kernels and not settings.given.enforce_eager
    if not compiles or takes_items(model, settings.modalities_off):
        return ()
    vocabulary, hidden = padded_vocabulary(model), model.shape.hidden
    batch, made = (settings.max_num_batched_tokens, "tokens"), 2 if tensor == 1 else 1
    return (
        Product("a random copy of the embedding, to try a kernel on", element, (vocabulary, hidden), tensor),
        Product("what that kernel makes of it", element, (batch, made, hidden)),
    )


def held_open(compiled: Sequence[Term], version: str | None) -> int:
    """The most that counts once more: the copy's segment, where something that stays was cut from it meanwhile."""
    if not compiled or not COUNTS_SEGMENTS.at(version) or SPLITS_NO_LARGE_BLOCK.at(version):
        return 0
    return segments(compiled[0].size)
