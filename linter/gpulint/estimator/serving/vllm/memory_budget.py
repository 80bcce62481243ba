"""How vLLM shares out a GPU: the memory that it requests, what is not the KV cache's, and what is left for that.

vLLM's names for them are used here (vllm/v1/worker/gpu_worker.py `determine_available_memory`, utils/mem_utils.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...estimate import LEAST, MOST, Tiers
from ...terms import Term, less, line, terms, tier, total
from .activations import held_open

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from .rank_memory import RankMemory

AVAILABLE, TOKEN, REQUEST = "available_kv_cache_memory", "kv_token", "kv_request"
"""Figures behind the cache that have terms of their own: what is left for it, what a token and a request take."""

CACHE = "vllm/v1/core/kv_cache_utils.py"
_SOURCE = "vllm/v1/worker/gpu_worker.py determine_available_memory"

GRAPHS_BESIDE = "CUDA graphs, beside the cache's budget"


class AvailableMemory(NamedTuple):
    """vLLM's `available_kv_cache_memory`, and its bounds in bytes.

    `requested_memory` is the budget, None where the cache's size is stated and no card is known. `terms` sum to what is
    expected: the budget less all of `non_kv_cache_memory`, or what is stated.
    """

    requested_memory: int
    terms: tuple[Term, ...]
    low: int
    high: int
    stated: bool = False

    @property
    def expected(self) -> int:
        """Expected bytes of the cache."""
        return total(self.terms)


def available_kv_cache_memory(memory: RankMemory, gpu: Gpu | None, stated: int | None) -> AvailableMemory | None:
    """What is left for the cache; None without a GPU.

    The card's total lies between the least torch has reported and nvidia-smi's figure.
    """
    requested = requested_memory(memory, gpu)
    if stated is not None:
        given = line(AVAILABLE, stated, "as the config states it", CACHE)
        return AvailableMemory(requested.size if requested else 0, (given,), stated, stated, stated=True)
    if gpu is None or requested is None:
        return None
    least, most = non_kv_cache_bounds(memory)
    largest, margin = round(memory.settings.utilization * gpu.total), memory.residual_margin
    found = (requested, *less(AVAILABLE, non_kv_cache_memory(memory)))
    return AvailableMemory(requested.size, found, requested.size - most - margin, largest - least + margin)


def requested_memory(memory: RankMemory, gpu: Gpu | None) -> Term | None:
    """`gpu_memory_utilization` of the card, as torch sees it (vllm/v1/worker/utils.py `request_memory`)."""
    if gpu is None:
        return None
    share = memory.settings.utilization
    formula = f"{share:g} x {gpu.usable:,} B"
    return Term(AVAILABLE, formula, round(share * gpu.usable), _SOURCE, "gpu_memory_utilization")


def non_kv_cache_memory(memory: RankMemory) -> list[Term]:
    """All that counts against the budget: of the profile run and what is compiled for it, the larger."""
    names = ["CUDA context"] * bool(memory.context_increase) + ["libraries"] + ["NCCL"] * bool(memory.nccl_increase)
    parts = (
        (memory.weights, "weights and adapters"),
        (0 if memory.compiles else memory.run.total, "the profile run"),
        (memory.unused_segments, "segments that it leaves free, which count too"),
        (total(memory.workspaces), "cuBLAS workspace and the sampler's states"),
        (memory.non_torch_increase - memory.drift, f"{', '.join(names)}: what is outside torch and counts"),
        (memory.drift, "what others take of the memory meanwhile, its middle"),
        (memory.graphs.expected if memory.settings.profile.graphs_in_budget else 0, "CUDA graphs"),
    )
    compiled = memory.compiling if memory.compiles else ()
    return [*compiled, *(line(AVAILABLE, size, what, _SOURCE) for size, what in parts)]


def non_kv_cache_bounds(memory: RankMemory) -> tuple[int, int]:
    """The least and the most bytes of `non_kv_cache_memory`."""
    chosen, (below, above) = memory.settings, memory.non_torch_bounds
    peak = max(memory.run.high, memory.torch_peak_increase) + held_open(memory.compiling, chosen.version)
    least = memory.resident + memory.run.low + below
    most = memory.resident + memory.wider + peak + memory.unused_segments + above
    if chosen.profile.graphs_in_budget:
        return least + memory.graphs.low, most + memory.graphs.high
    return least, most + (memory.graphs.expected if chosen.profile.graphs_tried else 0)


def graph_terms(memory: RankMemory) -> list[Term]:
    """The CUDA graphs, which count against the budget or lie beside it."""
    label = "CUDA graphs" if memory.settings.profile.graphs_in_budget else GRAPHS_BESIDE
    return terms("buffers", (memory.graphs.product._replace(label=label),))


def cache_figures(memory: RankMemory) -> list[Term]:
    """The arithmetic of a token and of the longest request."""
    cache = memory.cache
    if not cache.block_bytes:
        return []
    found = terms(TOKEN, memory.token, CACHE)
    if total(found) != cache.bytes_per_token:
        own = any(group.block_size for group in cache.groups)
        formula = f"{cache.block_bytes:,} B x {sum(group.groups for group in cache.groups)} / {cache.block_size} tokens"
        what = "a block of every group of layers, over the tokens that it holds"
        size = cache.bytes_per_token
        found = [line(TOKEN, size, what, CACHE) if own else Term(TOKEN, formula, size, CACHE, what)]
    return [*found, *terms(REQUEST, (memory.request,), CACHE)]


STARTS = "by which starts were found to differ from what is derived (estimator/serving/vllm/memory_budget.py)"


def process_tiers(memory: RankMemory, allocated: int, *, started: bool) -> Tiers:
    """The engine takes all of its budget; what may vary is what lies outside it, and some of what is inside.

    At the least nothing of the run is there, as after the start, and the graphs take less than the cache left them. At
    the most both captures of a size take what the larger of those that were measured does. An engine that is not known
    to have `started` (it refuses, or no card is known) has no bound of its own: its run may take as little and as much
    as is derived.
    """
    graphs, run, overhead, runtime = memory.graphs, memory.run, memory.overhead, total(memory.runtime)
    low = [
        (allocated, "allocated"),
        (min(runtime, overhead.low), LEAST),
        (graphs.low - graphs.expected, "CUDA graphs, at the least"),
        (-memory.residual_margin, STARTS),
    ]
    high = [
        (allocated, "reserved"),
        (overhead.high, MOST),
        (memory.residual_margin, STARTS),
        (memory.gathering[1], "NCCL of torch's own communicator, at the most"),
        (memory.most_graphs - graphs.expected, "CUDA graphs, at the most"),
    ]
    if not started:
        low.append((run.low - run.total, "the profile run, at the least"))
        high.append((run.high - run.total, "the profile run, at the most"))
    else:
        low.append((run.workspace - run.total, "the profile run, which is over after the start"))
        high.append((memory.torch_peak_increase - run.total, "cache, where a start finds the model compiled"))
        if memory.settings.profile.graphs_in_budget:
            low.append((graphs.expected - graphs.high, "cache, where larger graphs have left less room for it"))
    reserved = tier("reserved", (allocated, "allocated at the peak"))
    process = tier("process", (allocated, "reserved"), (runtime, "runtime"))
    return Tiers(reserved, process, tier("low", *low), tier("high", *high)).holding()
