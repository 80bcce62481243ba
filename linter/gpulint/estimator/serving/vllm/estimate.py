"""How vLLM fills a GPU: a budget, and in it weights, the profile run's peak, and a KV cache of all that is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import GIB, bytes_text
from ...estimate import Assumption, Estimate, KvCache, NotEstimable, PerGpu, Phase
from ...explain.product import total
from ...verdict import capacity
from ..generation.stored_cache import fp8_perhaps
from ..inference_assumptions import inference_assumptions
from ..kv_cache import caches_nothing
from .activations import encoder_bytes
from .draft import draft_model, is_head, is_prediction, predicts
from .items import items
from .memory_budget import parts_of, room_of
from .settings import captures_nccl, settings
from .terms import bounds, terms_of

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Inference, Job
    from ....models.model import Model
    from ...estimate import Verdict
    from .memory_budget import Parts, Room
    from .settings import Settings


def estimate_vllm(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of one vLLM rank.

    budget = gpu_memory_utilization x total memory as torch sees it
    cache  = budget - weights - profile run - what lies outside torch - CUDA graphs (where the version counts them)

    A first start is taken, which compiles the model: where that takes more than the profile run, it counts in its place
    (vllm_compile.py), and `high` of the cache is what a start with a compiled model gets.

    vLLM refuses to start when the free memory is less than the budget (from 0.9 on), when nothing is left for the
    cache, and when the cache cannot hold one request of max_model_len; `refusal` is that reason. The verdict is
    `exceeds` when even the most room that may be left is too little, `tight` when the least is, else `fits`: an
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
    given = job.inference
    assert given is not None
    parts = parts_of(job, model, gpu, chosen)
    room = room_of(parts, gpu, given.kv_cache_memory_bytes)
    refusal, outcome = _outcome(parts, gpu, room, given, nccl=captures_nccl(job, gpu))
    if caches_nothing(model):
        room = None
    pool = parts.request if room is None or refusal else max(0, room.expected)
    phases = _phases(parts, pool)
    serve = phases[-1]
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        per_gpu=_per_gpu(parts, serve, room, refused=refusal is not None),
        phases=tuple(phases),
        peak=serve,
        runtime=parts.runtime,
        verdict=outcome,
        capacity=capacity(gpu),
        kv_cache=None if caches_nothing(model) else _kv_cache(parts, room),
        refusal=refusal,
        host=round((given.cpu_offload_gb + (given.swap_space_gb or 0.0)) * GIB),
        assumptions=(*_assumptions(job, model, chosen), *_first(parts)),
        terms=tuple(terms_of(job, model, parts, room, pool, gpu, refused=refusal is not None)),
    )


def _outcome(
    parts: Parts, gpu: Gpu | None, room: Room | None, given: Inference, *, nccl: bool = False
) -> tuple[str | None, Verdict]:
    """The reason for refusing to start, if any, and the verdict.

    Graphs beside the budget are taken at their most, with both captures of a size, where they hold collectives of
    `nccl`: what it keeps for each depends on its release and on how the cards reach each other, which is not known.
    """
    if gpu is None or room is None:
        return None, "unknown"
    below = parts.spread[0]
    least_taken, most_taken = parts.neighbours.held
    free = gpu.usable - max(parts.before, least_taken)
    if parts.settings.checks_free and room.budget > free:
        text = (
            f"vLLM asks for {bytes_text(room.budget)} ({parts.settings.utilization:g} of the card) and finds"
            f" {bytes_text(free)} free"
        )
        most = round(parts.settings.utilization * gpu.total)
        return text, "exceeds" if most > gpu.total - max(1, parts.before - below, least_taken) else "tight"
    chosen = parts.settings
    least = given.max_model_len == -1 or not chosen.length_known
    needed = parts.cache.block_bytes if least else parts.request
    if room.expected < max(1, needed):
        return _noroom_of(parts, room), "exceeds" if room.high < max(1, needed) // parts.halves else "tight"
    if given.kv_cache_memory_bytes is not None:
        return None, _beside(parts, gpu, given.kv_cache_memory_bytes)
    graphs_beside = 0 if chosen.graphs_in_budget else parts.most_graphs if nccl else parts.graphs.expected
    if not chosen.length_known:
        needed = parts.cache.request_bytes(chosen.longest, chosen.in_flight)
    beside = parts.beside + graphs_beside
    unfree = chosen.checks_free and room.budget + most_taken > gpu.usable
    if unfree or room.budget + beside > gpu.total or room.low < max(1, needed):
        return None, "tight"
    return None, "fits"


def _beside(parts: Parts, gpu: Gpu, pool: int) -> Verdict:
    """Whether a cache of a stated size fits beside the rest; vLLM does not check that (gpu_worker.py)."""
    expected = parts.weights + parts.slots + parts.workspace + pool
    low = expected + parts.run.low + parts.graphs.low + parts.overhead.low
    high = expected + parts.run.high + parts.graphs.high + parts.overhead.high
    if low > gpu.usable:
        return "exceeds"
    return "fits" if high <= gpu.usable else "tight"


def _noroom_of(parts: Parts, room: Room) -> str:
    held = parts.weights + parts.slots
    if room.expected <= 0:
        return (
            f"nothing is left for the KV cache: of {bytes_text(room.budget)} the weights take {bytes_text(held)},"
            f" {_measured(parts)} {bytes_text(parts.profiled)}"
        )
    chosen = parts.settings
    longest = parts.cache.longest(room.expected, chosen.max_model_len, chosen.in_flight)
    text = (
        f"one request of max_model_len {chosen.max_model_len:,} needs {bytes_text(parts.request)} of KV cache and"
        f" {bytes_text(room.expected)} is left"
    )
    return text + (f"; the longest that fits is {longest:,}" if longest else "")


def _measured(parts: Parts) -> str:
    return "compiling, which a later start may skip," if parts.compiles else "the profile run"


def _phases(parts: Parts, pool: int) -> list[Phase]:
    fixed = {"weights": parts.weights, "adapter": parts.slots, "buffers": parts.workspace}
    run = {"activations": parts.run.activations, "logits": parts.run.logits}
    compiling = [Phase("compile", {**fixed, "activations": total(parts.compiling)})] if parts.compiling else []
    return [
        Phase("load", {"weights": parts.weights, "adapter": parts.slots}),
        *compiling,
        Phase("profile_run", {**fixed, **run}),
        Phase("serve", {**fixed, **run, "kv_cache": pool, "buffers": parts.workspace + parts.graphs.expected}),
    ]


def _per_gpu(parts: Parts, serve: Phase, room: Room | None, *, refused: bool) -> PerGpu:
    """The engine takes all of its budget; what may vary is what lies outside it, and `bounds` inside."""
    process = serve.allocated + parts.runtime
    below, above = parts.spread
    less, more = (sum(line.size for line in lines) for lines in bounds(parts, bound=room is not None and not refused))
    low, high = process - below + less, process + above + more
    return PerGpu(serve.allocated, serve.allocated, process, min(low, process), max(high, process))


def _kv_cache(parts: Parts, room: Room | None) -> KvCache:
    chosen, cache = parts.settings, parts.cache
    size = room.expected if room is not None else parts.request
    sizes = (room.low, room.high) if room is not None else (size, size)
    requests = cache.concurrency(size, chosen.max_model_len, chosen.in_flight)

    def tokens(held: int) -> int:
        if not chosen.tokens_of_requests:
            return cache.tokens(held, chosen.max_model_len)
        return int(cache.concurrency(held, chosen.max_model_len, chosen.in_flight) * chosen.max_model_len)

    low, high = (tokens(max(0, held)) for held in (sizes[0], sizes[1] * parts.halves))
    return KvCache(cache.bytes_per_token, tokens(size), round(requests, 2), low, high)


def _first(parts: Parts) -> list[Assumption]:
    """That the start is a first one, where a later one has more room for its cache."""
    if not parts.compiles:
        return []
    more = bytes_text(parts.profiled - parts.run.total)
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
