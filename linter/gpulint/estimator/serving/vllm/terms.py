"""The derivation of what a vLLM rank holds, as lines that a reader can redo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...allocator.runtime import WORKSPACE
from ...estimate import Term
from ...explain.derivation import weights as weight_terms
from ...explain.product import Product, terms
from .activations import padded_vocabulary
from .items import requests_profiled
from .settings import sampler_source

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from .memory_budget import Parts, Room

ACTIVATIONS = "estimator/serving/vllm_activations.py"
WORKSPACE_SOURCE = "vllm/v1/worker/workspace.py"
BUDGET = "vllm/v1/worker/gpu_worker.py determine_available_memory"
COMPILED = "torch/_inductor/standalone_compile.py autotune_at_compile_time"
CACHE = "vllm/v1/core/kv_cache_utils.py"
PENALTIES = "vllm/v1/worker/gpu/sample/penalties.py"

ROOM, TOKEN, REQUEST = "kv_room", "kv_token", "kv_request"
"""Figures behind the cache that have lines of their own: what is left for it, what a token and a request take."""


def terms_of(
    job: Job, model: Model, parts: Parts, room: Room | None, pool: int, gpu: Gpu | None, *, refused: bool
) -> list[Term]:
    """The lines of every component, of the cache's room, of a token and a request in it, and of the interval."""
    lines = [*weight_terms(parts.found), *terms("weights", parts.made)]
    if parts.slots:
        given = job.inference
        rank = (given.max_lora_rank if given else None) or 16
        what = f"LoRA slots of rank {rank}: both matrices of every linear layer"
        lines.append(_line("adapter", parts.slots, what, "vllm/lora/layers create_lora_weights"))
    lines += [*_run(job, model, parts, gpu), *_buffers(model, parts)]
    stated = job.inference.kv_cache_memory_bytes if job.inference else None
    if room is not None and gpu is not None and stated is None:
        lines += _room(parts, room, gpu)
    if pool and pool == parts.request:
        lines += terms("kv_cache", (_request(parts),), CACHE)
    elif pool:
        left = room is not None and stated is None and not refused
        lines.append(_line("kv_cache", pool, "all the room that is left" if left else "as the config states it", CACHE))
    lines += [*_cache(parts), *_runtime(parts)]
    least, most = bounds(parts, bound=room is not None and not refused)
    return [*lines, *least, *most]


def _line(component: str, size: int, label: str, source: str = "") -> Term:
    return Term(component, f"{size:,} B", size, source, label)


def _run(job: Job, model: Model, parts: Parts, gpu: Gpu | None) -> list[Term]:
    """The profile run: logits, what passes through the text model, the workspace that stays, and the vision tower."""
    chosen, run = parts.settings, parts.run
    lines: list[Term] = []
    if run.logits:
        requests = requests_profiled(model, chosen), "requests"
        logits = Product("the sampler, padded vocabulary", chosen.sampler_bytes, (requests, padded_vocabulary(model)))
        lines += terms("logits", (logits,), sampler_source(job, model, gpu), run.logits)
    lines += terms("activations", run.passing, ACTIVATIONS, run.activations - run.workspace - run.encoder)
    seen = terms("activations", run.seen, "estimator/serving/vllm_encoder.py")
    early = run.encoder - sum(line.size for line in seen)
    lines += [*seen, *([_line("activations", early, "the workspace, which the tower runs before")] if early else [])]
    return lines + terms("activations", run.kept, WORKSPACE_SOURCE, run.workspace)


def _buffers(model: Model, parts: Parts) -> list[Term]:
    """cuBLAS's workspace, the sampler's states and the CUDA graphs."""
    chosen = parts.settings
    lines = [_line("buffers", parts.cublas, "cuBLAS workspace", WORKSPACE)]
    states = Product(
        "states of the sampler", chosen.state_bytes, ((chosen.max_num_seqs, "requests"), model.shape.vocabulary)
    )
    lines += terms("buffers", (states,), PENALTIES, parts.states)
    if parts.graphs.expected:
        layers, sizes = (model.shape.layers, "layers"), (chosen.graph_sizes, "batch sizes")
        found = Product(GRAPHS if chosen.graphs_in_budget else GRAPHS_BESIDE, parts.graphs.each, (layers, sizes))
        lines += terms("buffers", (found,), parts.graphs.source, parts.graphs.expected)
    return lines


GRAPHS = "CUDA graphs"
GRAPHS_BESIDE = "CUDA graphs, beside the cache's budget"


def _room(parts: Parts, room: Room, gpu: Gpu) -> list[Term]:
    """The budget, less all that counts against it: of the run and what is compiled for it, the larger."""
    chosen, overhead = parts.settings, parts.overhead
    nccl = parts.nccl if chosen.nccl_in_budget else parts.expected_gathering
    context = overhead.context if chosen.context_in_budget else 0
    budget = Term(ROOM, f"{chosen.utilization:g} x {gpu.usable:,} B", room.budget, BUDGET, "gpu_memory_utilization")
    taken = (
        (parts.weights + parts.slots, "weights and adapters"),
        (0 if parts.compiles else parts.run.total, "the profile run"),
        (parts.unused, "segments that it leaves free, which count too"),
        (parts.workspace, "cuBLAS workspace and the sampler's states"),
        (context + overhead.libraries + nccl, _outside(context, nccl)),
        (parts.outside - context - overhead.libraries - nccl, "what others take of the memory meanwhile, its middle"),
        (parts.graphs.expected if chosen.graphs_in_budget else 0, "CUDA graphs"),
    )
    measured = tuple(item._replace(each=-item.each) for item in parts.compiling) if parts.compiles else ()
    compiled = terms(ROOM, measured, COMPILED)
    return [budget, *compiled, *(_line(ROOM, -size, what, BUDGET) for size, what in taken if size)]


def _outside(context: int, nccl: int) -> str:
    parts = ["CUDA context"] * bool(context) + ["libraries"] + ["NCCL"] * bool(nccl)
    return f"{', '.join(parts)}: what is outside torch and counts"


def _cache(parts: Parts) -> list[Term]:
    """The arithmetic of a token and of the longest request."""
    cache = parts.cache
    if not cache.block_bytes:
        return []
    lines = terms(TOKEN, parts.token, CACHE)
    if sum(line.size for line in lines) != cache.bytes_per_token:
        own = any(group.block_size for group in cache.groups)
        formula = f"{cache.block_bytes:,} B x {sum(group.groups for group in cache.groups)} / {cache.block_size} tokens"
        what = "a block of every group of layers, over the tokens that it holds"
        size = cache.bytes_per_token
        lines = [_line(TOKEN, size, what, CACHE) if own else Term(TOKEN, formula, size, CACHE, what)]
    return [*lines, *terms(REQUEST, (_request(parts),), CACHE)]


def _request(parts: Parts) -> Product:
    """The longest request, with the block that vLLM keeps back."""
    chosen, cache = parts.settings, parts.cache
    blocks = cache.request_blocks(chosen.max_model_len, chosen.in_flight), "blocks"
    return Product(f"one request of {chosen.max_model_len:,} tokens", cache.block_bytes, (blocks,))


def _runtime(parts: Parts) -> list[Term]:
    """What lies outside torch, each part with its measurement."""
    overhead = parts.overhead
    found = (
        (overhead.context, "CUDA context", "context"),
        (overhead.libraries, "libraries", "libraries"),
        (parts.nccl, "NCCL", "NCCL"),
        (parts.expected_gathering, "NCCL of torch's own communicator", "NCCL"),
    )
    return [
        _line("runtime", size, f"{label}, measured", overhead.source_of(name)) for size, label, name in found if size
    ]


STARTS = "by which starts were found to differ from what is derived (estimator/serving/vllm_parts.py)"


def bounds(parts: Parts, *, bound: bool) -> tuple[list[Term], list[Term]]:
    """By what the process may hold less and more inside its budget; `bound` where the engine has started.

    At the least nothing of the run is there, as after the start, and the graphs take less than the cache left them. At
    the most both captures of a size take what the larger of those that were measured does. A refused engine has no
    bound of its own: its run may take as little and as much as is derived.
    """
    graphs, run = parts.graphs, parts.run
    least = [(graphs.low - graphs.expected, "CUDA graphs, at the least"), (-parts.beyond, STARTS)]
    most = [
        (parts.beyond, STARTS),
        (parts.gathering[1], "NCCL of torch's own communicator, at the most"),
        (parts.most_graphs - graphs.expected, "CUDA graphs, at the most"),
    ]
    if not bound:
        least.append((run.low - run.total, "the profile run, at the least"))
        most.append((run.high - run.total, "the profile run, at the most"))
    else:
        least.append((run.workspace - run.total, "the profile run, which is over after the start"))
        most.append((parts.profiled - run.total, "cache, where a start finds the model compiled"))
        if parts.settings.graphs_in_budget:
            least.append((graphs.expected - graphs.high, "cache, where larger graphs have left less room for it"))
    return [_line("low", size, what) for size, what in least if size], [
        _line("high", size, what) for size, what in most if size
    ]
