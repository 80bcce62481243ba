"""The Estimate of an engine that gives its KV cache a share of the card: what SGLang, TGI and others have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....units import GIB
from ...allocator import runtime
from ...estimate import Assumption, Estimate, KvCache, PerGpu, Phase, Term
from ...explain import product as products
from ...explain.derivation import outside
from ...explain.derivation import weights as weight_terms
from ...explain.product import Product, total
from ...states.parameters import allocated, base_dtype, parameters
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import attention_tensor
from ...verdict import capacity, verdict
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
from ..vllm.blocks import offloaded
from ..vllm.settings import Graphs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...allocator.runtime import Overhead
    from ...states.parameters import Parameter


ACTIVATIONS, CACHE = "estimator/serving/vllm_activations.py", "estimator/serving/kv_cache.py"


NO_GRAPHS = Graphs(0, 0, 0, "")


class Rank(NamedTuple):
    """What one rank holds beside the cache, in bytes; `token` and `request` of cache, `length` of the longest request.

    `passing` and `scored` are activations and logits of one step of the given tokens and requests; `each` is a token's
    cache, layer by layer.
    """

    found: tuple[Parameter, ...]
    weights: int
    workspace: int
    passing: tuple[Product, ...]
    scored: Product
    token: int
    each: tuple[Product, ...]
    request: int
    length: int
    overhead: Overhead

    @property
    def activations(self) -> int:
        """Bytes of what passes through the widest layer."""
        return total(self.passing)

    @property
    def logits(self) -> int:
        """Bytes of the logits."""
        return round(self.scored.size)


def rank(job: Job, model: Model, gpu: Gpu | None, tokens: int, requests: int) -> Rank:
    """The rank that holds most. Logits: 16 bits and a float32 copy for each request."""
    given, plan = job.inference, job.parallelism
    assert given is not None
    found = tuple(item for item in parameters(job, model) if item.part in ("base", "buffer"))
    dtype = base_dtype(job, model)
    element = max(2.0, dtype_bytes(dtype))
    caches, width = layer_caches(model), cache_bytes(cache_dtype(job, model), dtype)
    length = given.max_model_len or model.shape.max_positions or tokens
    ranks = attention_tensor(job)
    return Rank(
        found=found,
        weights=allocated(found) - offloaded(found, round(given.cpu_offload_gb * GIB)),
        workspace=runtime.allocated_workspace(job, gpu),
        passing=layer_products(model, tokens, element, plan.tensor),
        scored=Product("logits and a float32 copy", element + 4, ((requests, "requests"), padded_vocabulary(model))),
        token=bytes_per_token(caches, width, ranks, plan.pipeline),
        each=token_products(caches, width, ranks, plan.pipeline),
        request=sequence_bytes(caches, length, width, tensor=ranks, pipeline=plan.pipeline),
        length=length,
        overhead=runtime.process_overhead(gpu, job),
    )


def pooled(
    job: Job,
    model: Model,
    gpu: Gpu | None,
    held: Rank,
    pool: int | None,
    *,
    refusal: str | None = None,
    cannot: bool = False,
    doubtful: bool = False,
    least: int = 0,
    absorbs: float = 0.0,
    between: tuple[int, int] | None = None,
    captured: Graphs = NO_GRAPHS,
    terms: tuple[Term, ...] = (),
    assumptions: tuple[Assumption, ...] = (),
) -> Estimate:
    """The Estimate with a cache of `pool` bytes; of one request's where the card is not known.

    An engine that refuses needs `least` bytes of cache to start, which the estimate then holds. `cannot` says of a
    refusal that no reading of the card avoids it: the verdict is then `exceeds`, else `tight`; `doubtful` of an engine
    that starts that some reading of the card makes it refuse.
    `between` are the least and the most bytes of the cache, where they are known.
    `absorbs` is the part of a larger CUDA context and NCCL by which the engine makes its cache smaller. `captured`
    graphs lie beside all that.
    """
    size = held.request if pool is None else least if refusal else max(0, pool)
    fixed = {"weights": held.weights, "buffers": held.workspace + captured.expected}
    serve = Phase("serve", {**fixed, "kv_cache": size, "activations": held.activations, "logits": held.logits})
    process, overhead = serve.allocated + held.overhead.total, held.overhead
    absorbed = 0 if pool is None or refusal else round(min(max(0, pool), absorbs * (overhead.high - overhead.total)))
    less, more = captured.expected - captured.low, captured.high - captured.expected
    low, high = serve.allocated + overhead.low - less, serve.allocated + overhead.high - absorbed + more
    per_gpu = PerGpu(serve.allocated, serve.allocated, process, low, high)
    outcome = verdict(per_gpu, gpu)
    if refusal is not None and gpu is not None:
        outcome = "exceeds" if cannot else "tight"
    elif doubtful and outcome == "fits":
        outcome = "tight"
    tokens = max(0, held.request if pool is None else pool)
    workspace = runtime.allocated_workspace(job, gpu)
    what = f"one request of {held.length:,} tokens"
    if pool is not None:
        what = "what the engine refuses to start without" if refusal else "all the room that is left"
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        per_gpu=per_gpu,
        phases=(Phase("load", {"weights": held.weights}), serve),
        peak=serve,
        runtime=overhead.total,
        verdict=outcome,
        capacity=capacity(gpu),
        kv_cache=None
        if caches_nothing(model) or not (held.token or held.request)
        else KvCache(
            held.token,
            tokens // held.token if held.token else 0,
            round(tokens / held.request, 2) if held.request else 0.0,
            *((max(0, size) // held.token for size in between) if between and held.token else ()),
        ),
        refusal=refusal,
        host=round((job.inference.cpu_offload_gb if job.inference else 0) * GIB),
        assumptions=assumptions,
        terms=(
            *weight_terms(held.found),
            *terms,
            *(products.terms("activations", held.passing, ACTIVATIONS)),
            *(products.terms("logits", (held.scored,), ACTIVATIONS, held.logits)),
            *token_terms(held),
            *([Term("kv_cache", f"{size:,} B", size, "", what)] if size else []),
            Term("buffers", f"{workspace:,} B", workspace, runtime.WORKSPACE, "cuBLAS workspace"),
            *outside(overhead),
            *([Term("low", f"{-less:,} B", -less, "", "CUDA graphs, at the least")] if less else []),
            *([Term("high", f"{more:,} B", more, "", "CUDA graphs, at the most")] if more else []),
        ),
    )


ROOM, TOKEN = "kv_room", "kv_token"
"""Figures behind the cache that have lines of their own: what is left for it, and what a token takes."""


def token_terms(held: Rank) -> list[Term]:
    """A token's cache: layer by layer, or as one figure where its pools are not those of its layers alone."""
    lines = products.terms(TOKEN, held.each, CACHE)
    if sum(line.size for line in lines) == held.token:
        return lines
    what = "all of its layers' pools, with what each keeps (estimator/serving/kv_cache.py)"
    return [Term(TOKEN, f"{held.token:,} B", held.token, CACHE, what)] if held.token else []


def room_terms(parts: Iterable[tuple[int, str]], source: str, first: Term) -> list[Term]:
    """`first`, which the room begins with, and what is taken off it, in bytes and words."""
    return [first, *(Term(ROOM, f"{-size:,} B", -size, source, what) for size, what in parts if size)]
