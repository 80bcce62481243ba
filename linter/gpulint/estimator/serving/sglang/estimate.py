"""How SGLang fills a GPU: a static share for weights and KV cache, the rest for activations and CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import GIB, MIB, bytes_text
from ....upstream.serving import sglang
from ...allocator.fragmentation import policy
from ...allocator.runtime import neighbours
from ...estimate import Estimate
from ...terms import Product, Term, line, terms, total
from ..inference_assumptions import inference_assumptions
from ..pools.pool import Pool, available, pooled, rank
from ..vllm.blocks import SOURCE as BLOCKS_SOURCE
from ..vllm.blocks import segment_rounding
from ..vllm.memory_budget import AVAILABLE
from ..vllm.rank_memory import RESIDUAL_MARGIN, serving_dtype
from ..vllm.settings import graphs
from ..vllm.weights import rotary_products
from .cache import SOURCE, added, caches_no_token, hybrid, ratio, request_bytes, set_aside, token_bytes
from .profile import profile
from .settings import captured_sizes, share

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...allocator.runtime import Overhead
    from ..pools.pool import Rank

_REFUSES = "Not enough memory. Please try to increase --mem-fraction-static."
"""What it stops with, in all versions from 0.4.6 to 0.5.23."""

_FEWEST_REQUESTS, _MOST_REQUESTS = 2048, 4096
"""Requests whose tokens the pool finds, where nobody says how many may run (model_runner.py `init_memory_pool`)."""

_ROTARY_ELEMENT = 4
"""Bytes of a cosine or sine: SGLang's kernel takes float32 (srt/layers/rotary_embedding.py since 0.4.3)."""

_COMPUTED = "gemma3"
"""Model types whose cosines are computed in each step (srt/models/gemma3_causal.py `Gemma3RotaryEmbedding`)."""


def estimate_sglang(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of one SGLang rank.

    cache = memory free before loading x mem_fraction_static - what loading took (weights in whole segments, rotary
    tables); the rest is for the activations of one chunk and CUDA graphs. A hybrid model's pool is divided, 0.9 to
    1, between states and tokens, or the states of a stated number of requests come first (sglang_states.py). `refusal`
    is that what is left holds no token (0.5.23 srt/model_executor/pool_configurator.py `MemoryPoolConfig`): the verdict
    is `exceeds` where even the most free memory leaves none, `tight` where only the least does. Requests longer than
    the pool are no reason to refuse. Graphs take for each layer and size what vLLM's do. `max_total_tokens` makes the
    pool smaller. The table that finds a request's tokens lies beside the share. `low` and `high` of the cache are by
    what a context and NCCL may take before the weights (NCCL nothing at the least: it connects with its first use), and
    by what a card of that name may have, and by what vLLM's starts were found to differ (`BEYOND`).
    Source: sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py `_profile_available_bytes`, the same in 0.4.6
    srt/model_executor/model_runner.py `profile_max_num_token`.
    """
    given = job.serving
    version = given.version or job.versions.get(sglang.NAME) or sglang.NEWEST
    job = job if job.weights.dtype else job.with_changes({"weights.dtype": serving_dtype(job, model)})
    chosen = share(job, model, gpu)
    held = rank(job, model, gpu, chosen.chunk, given.max_num_seqs or 1)
    limit = round(given.cpu_offload_gb * GIB)
    computed = model.model_type.startswith(_COMPUTED)
    more = added(model, held.found, gpu)
    made = (
        *(() if computed else rotary_products(model, _ROTARY_ELEMENT, multimodal=1)),
        Product("projections made wider than they are stored", more.sure, source=SOURCE),
        Product("float32 scales of the experts", more.scales, source=SOURCE),
        Product(
            "torch's segments above the weights' bytes",
            segment_rounding(held.found, policy(job), limit),
            source=BLOCKS_SOURCE,
        ),
    )
    token = token_bytes(job, model, gpu, profile(version))
    held = held._replace(token=token, weights=(*held.weights, *terms("weights", made)))
    told = inference_assumptions(job, model, chosen.defaulted, f"SGLang {version}")
    if gpu is None:
        return pooled(job, model, gpu, held, None, told)
    states, cached = set_aside(job, model, version) or 0, not caches_no_token(job, model, gpu, version)
    needed = max(1, held.token) if cached else 0
    static = _static_share(gpu, held, chosen.fraction, states) if cached else ()
    least, most = _bounds(gpu, held, chosen.fraction, states, more.scales) if cached else (0, 0)
    refusal = None
    if total(static) < needed:
        refusal = (
            f"nothing is left for the KV cache: of the static {bytes_text(static[0].size)} the weights take"
            f' {bytes_text(total(held.weights))} ("{_REFUSES}")'
        )
    elif not cached:
        held = held._replace(token=0, each=(), request=0)
    elif hybrid(model) and not states:
        held = held._replace(token=round(held.token * (1 + ratio(job))))
    elif states:
        held = held._replace(request=held.token * held.length)
    if given.max_total_tokens is not None:
        unasked = max(0, total(static) - given.max_total_tokens * held.token)
        static = available(static, line("", unasked, "more than max_total_tokens asks for", PROFILED))
        least, most = min(least, total(static)), min(most, total(static))
    table = request_table(given.max_num_seqs, held.length, total(static) // max(1, needed))
    sizes = captured_sizes(profile(version), job, model, gpu.total / MIB, chosen.chunk)
    buffers = (*terms("buffers", (table,)), *_kept_states(job, model, states))
    held = held._replace(buffers=buffers, graphs=graphs(model, sizes))
    bounds = (least, most)
    pool = Pool(static, bounds, refusal, cannot=most < needed, doubtful=least < needed, least=needed)
    return pooled(job, model, gpu, held, pool, told)


def _static_share(gpu: Gpu, held: Rank, fraction: float, states: int) -> tuple[Term, ...]:
    """The static share of what is free before the weights, less what is loaded."""
    free = _free(gpu, held.overhead)[1]
    formula = f"{fraction:g} x {free:,} B"
    first = Term(AVAILABLE, formula, round(free * fraction), PROFILED, "static share of what is free before")
    return available(
        (first,),
        line("", total(held.weights), "weights", PROFILED),
        line("", sum(neighbours(gpu).drift) // 2, "what others take of the memory meanwhile, its middle", PROFILED),
        line("", states, "states of the requests that may run", PROFILED),
    )


def _bounds(gpu: Gpu, held: Rank, fraction: float, states: int, scales: int) -> tuple[int, int]:
    """The least and the most bytes that may be left for the cache; `scales` are Marlin's alone."""
    (free, _, most_free), drift = _free(gpu, held.overhead), neighbours(gpu).drift
    taken, margin = total(held.weights) + states, round(RESIDUAL_MARGIN * gpu.total)
    least = round(free * fraction) - taken - drift[1] - margin
    return least, round(most_free * fraction) - taken - drift[0] + scales + margin


PROFILED = "sglang kv_cache_configurator.py _profile_available_bytes"


def _free(gpu: Gpu, overhead: Overhead) -> tuple[int, int, int]:
    """What is free before loading: at the least, expected, at the most."""
    least, most = neighbours(gpu).held
    if gpu.unified:
        return gpu.usable - most, gpu.usable - (least + most) // 2, gpu.total - least
    expected = gpu.usable - overhead.context - overhead.nccl
    others = max(0, most - overhead.context_range[1])
    return expected - (overhead.high - overhead.total) - others, expected, gpu.total - overhead.context_range[0]


_BEYOND = 4
"""Positions that the table has beyond a request's length."""


def request_table(requests: int | None, length: int, tokens: int) -> Product:
    """`ReqToTokenPool`: an int32 for each of length + 4 positions of each request that may run.

    Unstated requests are 512 x tokens / length, within 2,048 and 4,096; the same limits the stated ones since 0.5.12.
    Source: sglang 0.4.9 srt/model_executor/model_runner.py, srt/mem_cache/memory_pool.py.
    """
    possible = min(max(512 * tokens // max(1, length), _FEWEST_REQUESTS), _MOST_REQUESTS)
    counts = (length + _BEYOND, "positions"), (possible if requests is None else min(requests, possible), "requests")
    return Product("tokens of each request", 4, counts, source="sglang mem_cache/memory_pool.py")


def _kept_states(job: Job, model: Model, size: int) -> list[Term]:
    """Bytes of recurrent states that are set aside, request by request."""
    each = request_bytes(job, model) if size else 1
    kept = Product("states of each request", each, ((size // each, "requests"),))
    return terms("buffers", (kept,), "sglang configs/mamba_utils.py")
