"""How vLLM fills a GPU: a budget, and in it weights, the profile run's peak, and a KV cache of all that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import GIB, bytes_text
from ...estimate import Assumption, Estimate, KvCache, NotEstimable, Phase, capacity
from ...terms import line, terms, total
from ..inference_assumptions import inference_assumptions
from ..kv_cache import caches_nothing, fp8_perhaps
from .activations import encoder_bytes
from .draft import draft_model, is_head, is_prediction, predicts
from .items import items
from .memory_budget import CACHE, available_kv_cache_memory, cache_figures, graph_terms, process_tiers
from .rank_memory import rank_memory
from .settings import captures_nccl, settings

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Inference, Job
    from ....models.model import Model
    from ...estimate import Verdict
    from .memory_budget import AvailableMemory
    from .rank_memory import RankMemory
    from .settings import Settings


def estimate_vllm(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of one vLLM rank.

    budget = gpu_memory_utilization x total memory as torch sees it
    cache  = budget - weights - profile run - what lies outside torch - CUDA graphs (where the version counts them)

    A first start is taken, which compiles the model: where that takes more than the profile run, it counts in its place
    (activations.py), and `high` of the cache is what a start with a compiled model gets.

    vLLM refuses to start when the free memory is less than the budget (from 0.9 on), when nothing is left for the
    cache, and when the cache cannot hold one request of max_model_len; `refusal` is that reason. The verdict is
    `exceeds` when even the most that may be left is too little, `tight` when the least is, else `fits`: an
    engine that starts has what it needs. After a refusal the `serve` phase holds the cache of one request: what would
    be needed.
    A model that caches nothing (an encoder, served as a pooling model) gets no pool, whatever its share of the card,
    and the estimate no `kv_cache`.
    Source: vllm/v1/worker/gpu_worker.py `determine_available_memory`, vllm/v1/worker/utils.py `request_memory`,
    vllm/v1/core/kv_cache_utils.py `check_enough_kv_cache_memory`.
    Raises NotEstimable when neither config nor model says how long a request may be.
    """
    chosen = settings(job, model, gpu)
    if chosen is None:
        raise NotEstimable(f"no max_model_len is set and {model.id} does not state its longest sequence")
    given = job.serving
    memory = rank_memory(job, model, gpu, chosen)
    available = available_kv_cache_memory(memory, gpu, given.kv_cache_memory_bytes)
    refusal, outcome = _outcome(memory, gpu, available, given, nccl=captures_nccl(job, gpu))
    uncached = caches_nothing(model)
    pool = None if uncached or refusal else available
    phases = _phases(memory, pool)
    figures = cache_figures(memory)
    if available is not None and not uncached and not available.stated:
        figures += available.terms
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        tiers=process_tiers(memory, phases[-1].allocated, started=pool is not None).capped(gpu, outcome),
        phases=tuple(phases),
        peak=phases[-1],
        verdict=outcome,
        capacity=capacity(gpu),
        kv_cache=None if uncached else _kv_cache(memory, available),
        refusal=refusal,
        host=round((given.cpu_offload_gb + (given.swap_space_gb or 0.0)) * GIB),
        assumptions=(*_assumptions(job, model, chosen), *_first(memory)),
        beside=(*figures, *memory.runtime),
    )


def _outcome(
    memory: RankMemory, gpu: Gpu | None, available: AvailableMemory | None, given: Inference, *, nccl: bool = False
) -> tuple[str | None, Verdict]:
    """The reason for refusing to start, if any, and the verdict.

    Graphs beside the budget are taken at their most, with both captures of a size, where they hold collectives of
    `nccl`: what it keeps for each depends on its release and on how the cards reach each other, which is not known.
    """
    if gpu is None or available is None:
        return None, "unknown"
    chosen, requested = memory.settings, available.requested_memory
    below = max(0, total(memory.runtime) - memory.overhead.low)
    least_taken, most_taken = memory.neighbours.held
    free = gpu.usable - max(memory.initial_snapshot, least_taken)
    if chosen.profile.checks_free and requested > free:
        text = (
            f"vLLM asks for {bytes_text(requested)} ({chosen.utilization:g} of the card) and finds"
            f" {bytes_text(free)} free"
        )
        most = round(chosen.utilization * gpu.total)
        least_there = max(1, memory.initial_snapshot - below, least_taken)
        return text, "exceeds" if most > gpu.total - least_there else "tight"
    least = given.max_model_len == -1 or not chosen.length_known
    needed = memory.cache.block_bytes if least else memory.request_bytes
    if available.expected < max(1, needed):
        cannot = available.high < max(1, needed) // memory.halves
        return _too_little(memory, available), "exceeds" if cannot else "tight"
    if available.stated:
        return None, _with_stated_cache(memory, gpu, available.expected)
    graphs_beside = 0 if chosen.profile.graphs_in_budget else memory.most_graphs if nccl else memory.graphs.expected
    if not chosen.length_known:
        needed = memory.cache.request_bytes(chosen.longest, chosen.in_flight)
    beside = memory.outside_budget + graphs_beside
    unfree = chosen.profile.checks_free and requested + most_taken > gpu.usable
    if unfree or requested + beside > gpu.total or available.low < max(1, needed):
        return None, "tight"
    return None, "fits"


def _with_stated_cache(memory: RankMemory, gpu: Gpu, pool: int) -> Verdict:
    """Whether a cache of a stated size fits beside the rest; vLLM does not check that (gpu_worker.py)."""
    expected = memory.resident + pool
    low = expected + memory.run.low + memory.graphs.low + memory.overhead.low
    high = expected + memory.run.high + memory.graphs.high + memory.overhead.high
    if low > gpu.usable:
        return "exceeds"
    return "fits" if high <= gpu.usable else "tight"


def _too_little(memory: RankMemory, available: AvailableMemory) -> str:
    """Why what is left is too little for the cache, in vLLM's own figures."""
    left, chosen = available.expected, memory.settings
    if left <= 0:
        return (
            f"nothing is left for the KV cache: of {bytes_text(available.requested_memory)} the weights take"
            f" {bytes_text(memory.weights)}, {_measured(memory)} {bytes_text(memory.torch_peak_increase)}"
        )
    longest = memory.cache.longest(left, chosen.max_model_len, chosen.in_flight)
    text = (
        f"one request of max_model_len {chosen.max_model_len:,} needs {bytes_text(memory.request_bytes)} of KV cache"
        f" and {bytes_text(left)} is left"
    )
    text += f"; the longest that fits is {longest:,}" if longest else ""
    samplers = chosen.samplers
    if samplers.least == samplers.runs:
        return text
    spared = max(0, memory.run.total - memory.run.low)
    return f"{text} (where FlashInfer is installed, its sampler may leave {bytes_text(spared)} more)"


def _measured(memory: RankMemory) -> str:
    return "compiling, which a later start may skip," if memory.compiles else "the profile run"


def _phases(memory: RankMemory, available: AvailableMemory | None) -> list[Phase]:
    """What is there in turn; at the end with the cache that is `available`, or None: that of one request."""
    loaded = (*memory.weights_memory, *memory.lora_buffers)
    run = (*loaded, *memory.run.terms, *memory.workspaces)
    pool = terms("kv_cache", (memory.request,), CACHE)
    if available is not None:
        what = "as the config states it" if available.stated else "all that is left"
        pool = [line("kv_cache", max(0, available.expected), what, CACHE)]
    compiling = [Phase("compile", (*loaded, *memory.workspaces, *memory.compiling))] if memory.compiling else []
    return [
        Phase("load", loaded),
        *compiling,
        Phase("profile_run", run),
        Phase("serve", (*run, *graph_terms(memory), *pool)),
    ]


def _kv_cache(memory: RankMemory, available: AvailableMemory | None) -> KvCache:
    chosen, cache = memory.settings, memory.cache
    size = available.expected if available is not None else memory.request_bytes
    sizes = (available.low, available.high) if available is not None else (size, size)
    requests = cache.concurrency(size, chosen.max_model_len, chosen.in_flight)

    def tokens(held: int) -> int:
        if not chosen.profile.tokens_of_requests:
            return cache.tokens(held, chosen.max_model_len)
        return int(cache.concurrency(held, chosen.max_model_len, chosen.in_flight) * chosen.max_model_len)

    low, high = (tokens(max(0, held)) for held in (sizes[0], sizes[1] * memory.halves))
    return KvCache(cache.bytes_per_token, tokens(size), round(requests, 2), low, high)


def _first(memory: RankMemory) -> list[Assumption]:
    """That the start is a first one, where a later one has more memory for its cache."""
    if not memory.compiles:
        return []
    more = bytes_text(memory.torch_peak_increase - memory.run.total)
    note = f"a first start, which compiles the model; a later one may find that done and have {more} more for the cache"
    return [Assumption("compile cache", "empty", note)]


def _assumptions(job: Job, model: Model, chosen: Settings) -> tuple[Assumption, ...]:
    version = (job.inference.version if job.inference else None) or job.versions.get("vllm")
    found = list(inference_assumptions(job, model, chosen.defaulted, f"vLLM {version or '(newest known)'}"))
    if not chosen.length_known:
        note = f"the default of {model.model_type}'s class: no config of the checkpoint at hand states its own"
        found = [item for item in found if item.field != "inference.max_model_len"]
        found.append(Assumption("inference.max_model_len", str(chosen.max_model_len), note))
    if fp8_perhaps(job, model):
        note = "whether the checkpoint asks for fp8 is not known: the cache may hold twice the tokens"
        found.append(Assumption("inference.kv_cache_dtype", "auto", note))
    if chosen.sees and encoder_bytes(model, 1, 2.0) and items(model, chosen) is None:
        found.append(Assumption("model", model.id, "its vision encoder's profile run is not derived, only bounded"))
    if job.inference is not None and job.inference.speculative_model and draft_model(job, model) is None:
        known = "taken for one layer of the model that it drafts for" if is_head(job, model) else "not counted"
        note = f"its weights and cache are {known}"
        found.append(Assumption("inference.speculative_model", job.inference.speculative_model, note))
    algorithm = (job.inference.speculative_algorithm if job.inference else None) or ""
    if is_prediction(algorithm):
        known = "taken for layers like its last" if predicts(job, model) else "not counted"
        note = f"the weights and cache of the model's prediction layers are {known}"
        found.append(Assumption("inference.speculative_algorithm", algorithm, note))
    return tuple(found)
