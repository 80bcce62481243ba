"""The Estimate of an engine that gives its KV cache a share of the card: what SGLang, TGI and others have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....units import GIB
from ...allocator import runtime
from ...estimate import LEAST, MOST, Assumption, Estimate, KvCache, Phase, Tiers, capacity, verdict
from ...states.parameters import base_dtype, parameters
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import attention_tensor
from ...states.weights import weights
from ...terms import Product, Term, less, line, terms, tier, total
from ..generation.stored_cache import cache_dtype
from ..kv_cache import (
    bytes_per_token,
    cache_bytes,
    caches_nothing,
    layer_caches,
    sequence_bytes,
    token_products,
)
from ..vllm.activations import layer_products, padded_vocabulary
from ..vllm.blocks import OFFLOAD_SOURCE, offloaded
from ..vllm.memory_budget import AVAILABLE, TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...allocator.runtime import Overhead
    from ...states.parameters import Parameter
    from ..vllm.settings import Graphs


ACTIVATIONS, CACHE = "estimator/serving/vllm_activations.py", "estimator/serving/kv_cache.py"


class Rank(NamedTuple):
    """What one rank holds beside the cache, and in it: `token` and `request` bytes, `length` of the longest request.

    `activations` and `logits` are of one step of the given tokens and requests; `each` is a token's cache, layer by
    layer; `workspace` is cuBLAS's, `buffers` are others that stay, and `graphs` lie beside all that.
    """

    found: tuple[Parameter, ...]
    weights: tuple[Term, ...]
    workspace: tuple[Term, ...]
    activations: tuple[Term, ...]
    logits: tuple[Term, ...]
    token: int
    each: tuple[Product, ...]
    request: int
    length: int
    overhead: Overhead
    buffers: tuple[Term, ...] = ()
    graphs: Graphs | None = None

    @property
    def step(self) -> int:
        """Bytes of activations and logits of one step."""
        return total(self.activations) + total(self.logits)

    @property
    def resident(self) -> int:
        """Bytes of weights, workspace and buffers."""
        return total((*self.weights, *self.workspace, *self.buffers))


def rank(job: Job, model: Model, gpu: Gpu | None, tokens: int, requests: int) -> Rank:
    """The rank that holds most. Logits: 16 bits and a float32 copy for each request."""
    given, plan = job.serving, job.parallelism
    found = tuple(item for item in parameters(job, model) if item.part in ("base", "buffer"))
    dtype = base_dtype(job, model)
    element = max(2.0, dtype_bytes(dtype))
    caches, width = layer_caches(model), cache_bytes(cache_dtype(job, model), dtype)
    length = given.max_model_len or model.shape.max_positions or tokens
    ranks = attention_tensor(job)
    moved = offloaded(found, round(given.cpu_offload_gb * GIB))
    away = line("weights", -moved, "moved to main memory", OFFLOAD_SOURCE)
    scored = Product("logits and a float32 copy", element + 4, ((requests, "requests"), padded_vocabulary(model)))
    return Rank(
        found=found,
        weights=(*weights(found), *((away,) if moved else ())),
        workspace=tuple(runtime.workspace_terms(job, gpu)),
        activations=tuple(terms("activations", layer_products(model, tokens, element, plan.tensor), ACTIVATIONS)),
        logits=tuple(terms("logits", (scored,), ACTIVATIONS)),
        token=bytes_per_token(caches, width, ranks, plan.pipeline),
        each=token_products(caches, width, ranks, plan.pipeline),
        request=sequence_bytes(caches, length, width, tensor=ranks, pipeline=plan.pipeline),
        length=length,
        overhead=runtime.process_overhead(gpu, job),
    )


class Pool(NamedTuple):
    """The cache that an engine makes: what is left for it, and the least and the most bytes that it may be.

    `least` bytes are what the engine needs to start, `refusal` is its reason for not doing so, which no reading of the
    card avoids where it `cannot` start; `doubtful` says of one that starts that some reading makes it refuse.
    `absorbs` is the part of a larger CUDA context and NCCL by which the engine makes its cache smaller.
    """

    available: tuple[Term, ...]
    between: tuple[int, int]
    refusal: str | None
    cannot: bool
    doubtful: bool
    least: int
    absorbs: float = 0.0

    @property
    def size(self) -> int:
        """Expected bytes; below 0 where the weights alone take more than there is."""
        return total(self.available)


def pooled(
    job: Job, model: Model, gpu: Gpu | None, held: Rank, pool: Pool | None, assumptions: tuple[Assumption, ...]
) -> Estimate:
    """The Estimate with a cache of `pool`, or of one request's where the card is not known.

    An engine that refuses is estimated with the cache that it needs to start.
    """
    graphs = terms("buffers", (held.graphs.product,)) if held.graphs is not None else ()
    step = (*held.activations, *held.logits)
    serve = Phase("serve", (*held.weights, *_cache(held, pool), *held.buffers, *graphs, *held.workspace, *step))
    tiers = _tiers(held, pool, serve.allocated)
    outcome = verdict(tiers.per_gpu(serve.allocated), gpu)
    if pool is not None and pool.refusal is not None and gpu is not None:
        outcome = "exceeds" if pool.cannot else "tight"
    elif pool is not None and pool.doubtful and outcome == "fits":
        outcome = "tight"
    figures = [*token_terms(held), *(pool.available if pool is not None and held.token else ())]
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        tiers=tiers,
        phases=(Phase("load", held.weights), serve),
        peak=serve,
        verdict=outcome,
        capacity=capacity(gpu),
        kv_cache=None if caches_nothing(model) or not (held.token or held.request) else _kv_cache(held, pool),
        refusal=pool.refusal if pool is not None else None,
        host=round((job.inference.cpu_offload_gb if job.inference else 0) * GIB),
        assumptions=assumptions,
        beside=(*figures, *held.overhead.terms),
    )


def _cache(held: Rank, pool: Pool | None) -> list[Term]:
    """The cache: one request's, what the engine refuses to start without, or what is left."""
    size, what = held.request, f"one request of {held.length:,} tokens"
    if pool is not None:
        size = pool.least if pool.refusal else max(0, pool.size)
        what = "what the engine refuses to start without" if pool.refusal else "all that is left"
    return [line("kv_cache", size, what)] if size else []


def _tiers(held: Rank, pool: Pool | None, allocated: int) -> Tiers:
    overhead, graphs = held.overhead, held.graphs
    shrinks = pool is not None and not pool.refusal
    room = min(max(0, pool.size), pool.absorbs * (overhead.high - overhead.total)) if pool is not None else 0
    low = [(allocated, "allocated"), (overhead.low, LEAST)]
    high = [(allocated, "reserved"), (overhead.high, MOST), (-round(room) if shrinks else 0, ABSORBED)]
    if graphs is not None:
        low.append((graphs.low - graphs.expected, "CUDA graphs, at the least"))
        high.append((graphs.high - graphs.expected, "CUDA graphs, at the most"))
    reserved = tier("reserved", (allocated, "allocated at the peak"))
    process = tier("process", (allocated, "reserved"), (overhead.total, "runtime"))
    return Tiers(reserved, process, tier("low", *low), tier("high", *high))


ABSORBED = "cache, of which a larger context and NCCL leave less"


def _kv_cache(held: Rank, pool: Pool | None) -> KvCache:
    size = max(0, held.request if pool is None else pool.size)
    bounds = pool.between if pool is not None and held.token else ()
    return KvCache(
        held.token,
        size // held.token if held.token else 0,
        round(size / held.request, 2) if held.request else 0.0,
        *(max(0, bound) // held.token for bound in bounds),
    )


def token_terms(held: Rank) -> list[Term]:
    """A token's cache: layer by layer, or as one figure where its pools are not those of its layers alone."""
    found = terms(TOKEN, held.each, CACHE)
    if total(found) == held.token:
        return found
    what = "all of its layers' pools, with what each keeps (estimator/serving/kv_cache.py)"
    return [line(TOKEN, held.token, what, CACHE)] if held.token else []


def available(found: Sequence[Term], *taken: Term) -> tuple[Term, ...]:
    """What is left for the cache when all that is `taken` is off."""
    return (*found, *less(AVAILABLE, taken))
