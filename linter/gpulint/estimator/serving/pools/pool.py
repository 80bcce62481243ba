"""The Estimate of an engine that gives its KV cache a share of the card: what SGLang, TGI and others have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....source.tables import read_table
from ....units import GIB, bytes_text
from ....upstream.behaviour import as_of
from ...allocator import runtime
from ...allocator.runtime import neighbours
from ...estimate import LEAST, MOST, Assumption, Estimate, KvCache, Phase, Tiers, capacity, verdict
from ...states.parameters import base_dtype, parameters
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import attention_tensor
from ...states.weights import weights
from ...terms import Product, Term, less, line, terms, tier, total
from ..inference_assumptions import inference_assumptions
from ..kv_cache import (
    bytes_per_token,
    cache_bytes,
    cache_dtype,
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


ACTIVATIONS, CACHE = "estimator/serving/vllm/activations.py", "estimator/serving/kv_cache.py"


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


_TABLE = read_table(__file__, "pools.json")


def engine_name(engine: str) -> str | None:
    """The engine of `pools.json` that a spelling means; None for one that is not in it."""
    name = _TABLE["spellings"].get(engine.lower(), engine.lower())
    return name if name in _TABLE["engines"] else None


def estimate_pool(job: Job, model: Model, gpu: Gpu | None, engine: str) -> Estimate:
    """The Estimate of one rank of an engine of `pools.json`.

    free = card - CUDA context, kernels and NCCL
    cache = share x card - (card - free) - weights - step         (TGI)
            share x (free - weights - step - own) + own           (TGI before 3.0; own: the cache of the step's tokens)
            share x (free - weights - step)                       (TensorRT-LLM)
            share x (free - weights)                              (LMDeploy, which meets the step with what is left)

    `step` is the activations and logits of `max_num_batched_tokens` tokens and `max_num_seqs` requests. TGI before 3.0
    asked its warm-up for the probabilities of all prompt tokens: logits of each, until 2.4 with their logarithms beside
    them; of several ranks also those of the rank before they are gathered, and a copy of the gathered ones, which lie
    transposed (flash_causal_lm.py `generate_token`, `warmup`; layers/tensor_parallel.py; client.rs).
    `inference.gpu_memory_utilization` is the engine's own share (TGI's cuda memory fraction times its wiggle room,
    `free_gpu_memory_fraction`, `cache_max_entry_count`). Blocks are whole. `refusal` is that nothing is left, for TGI
    that the cache cannot hold the tokens of the step. `low` and `high` of the cache are by what may lie outside torch
    (NCCL nothing at the least: it may keep its buffers in main memory) and by what a card of that name may have.
    """
    given = job.serving
    version = given.version or job.versions.get(engine)
    row = _profile(engine, version)
    asked = {
        "inference.gpu_memory_utilization": (given.gpu_memory_utilization, row["share"]),
        "inference.max_num_batched_tokens": (given.max_num_batched_tokens, row["tokens"]),
        "inference.max_num_seqs": (given.max_num_seqs, row["requests"]),
    }
    share, tokens, requests = (default if stated is None else stated for stated, default in asked.values())
    held = rank(job, model, gpu, int(tokens), min(int(requests), int(tokens)))
    if row.get("copies"):
        ranks = job.parallelism.tensor
        gathered = row["copies"] + (1 + 1 / ranks if ranks > 1 else 0)
        counts = (int(tokens), "tokens"), padded_vocabulary(model)
        scored = Product(f"logits of all tokens, {gathered:g} times", 2 * gathered, counts)
        held = held._replace(logits=tuple(terms("logits", (scored,), ACTIVATIONS)))
    defaulted = [(path, str(default)) for path, (stated, default) in asked.items() if stated is None]
    tool = f"{row['name'].rpartition(' ')[0]} {version}" if version else row["name"]
    told = inference_assumptions(job, model, defaulted, tool)
    if gpu is None:
        return pooled(job, model, gpu, held, None, told)
    block, outside = row["block"] * held.token, held.overhead
    own, whole = int(tokens) * held.token, row["of"] in ("total", "free")
    limit = None if given.max_total_tokens is None or whole else given.max_total_tokens * held.token
    fewest, pool, most = (
        _pool(row, share, held, card, taken, own, limit, block)
        for card, taken in (
            (gpu.usable, outside.high + max(0, neighbours(gpu).held[1] - outside.context_range[1])),
            (gpu.usable, outside.total),
            (gpu.total, outside.low - outside.nccl_range[0]),
        )
    )
    least = own if whole else 1
    made = Pool(
        available=pool,
        between=(total(fewest), total(most)),
        refusal=_refusal(held, total(pool), least),
        cannot=total(most) < least,
        doubtful=total(fewest) < least,
        least=least,
        absorbs=1.0 if row["of"] == "total" else share,
    )
    return pooled(job, model, gpu, held, made, told)


def _pool(
    row: dict[str, Any],
    share: float,
    held: Rank,
    card: int,
    outside: int,
    own: int,
    limit: int | None,
    block: int,
) -> tuple[Term, ...]:
    """What is left for the cache of a `card`, beside what lies `outside` torch; no more than `limit`, whole blocks."""
    of, source = row["of"], row["source"]
    if of == "total":
        first = Term(AVAILABLE, f"{share:g} x {card:,} B", round(share * card), source, "share of the card")
        found = available(
            (first,),
            line("", outside, "what is outside torch", source),
            line("", total(held.weights), "weights", source),
            line("", total(held.workspace), "cuBLAS workspace", source),
            line("", held.step, "one step: activations and logits", source),
        )
    else:
        free = card - outside - held.resident - (0 if of == "weights" else held.step) - (own if of == "free" else 0)
        what = f"share of what weights, their workspace and what is outside torch leave of the card{_LESS[of]}"
        first = Term(AVAILABLE, f"{share:g} x {free:,} B", round(share * free), source, what)
        kept = line(AVAILABLE, own, "cache of the step's tokens", source)
        found = (first, kept) if of == "free" else (first,)
    more = 0 if limit is None else max(0, total(found) - limit)
    rest = (total(found) - more) % block if block else 0
    unused = (more, "more than is asked for"), (rest, "rest of a block")
    return (*found, *(line(AVAILABLE, -size, what, source) for size, what in unused if size))


_LESS = {"free": ", less one step and the cache of its tokens", "run": ", less one step", "weights": ""}


def _refusal(held: Rank, pool: int, least: int) -> str | None:
    if pool >= least:
        return None
    if pool <= 0:
        return f"nothing is left for the KV cache beside weights of {bytes_text(total(held.weights))}"
    return f"the KV cache of {bytes_text(pool)} does not hold the {bytes_text(least)} of one prefill step"


def _profile(engine: str, version: str | None) -> dict[str, Any]:
    """The engine's row, with what differed in an older version."""
    row: dict[str, Any] = _TABLE["engines"][engine]
    return {**row, **as_of(row.get("former", ()), version)}
