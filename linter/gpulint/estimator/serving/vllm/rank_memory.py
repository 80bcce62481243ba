"""What one vLLM rank holds beside its KV cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ....units import GIB
from ....upstream.serving.vllm import COPIES_OFFLOADED
from ...allocator import runtime
from ...allocator.fragmentation import policy
from ...states.parameters import allocated, base_dtype, parameters
from ...states.quantization import wider_perhaps
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import expert_tensor
from ...states.weights import weights
from ...terms import Product, line, terms, total
from ..kv_cache import cache_bytes, cache_dtype, fp8_perhaps, layer_caches, token_products
from ..layer_cache import LayerCache
from ..pools.compressed_cache import compressed_pool, compresses
from ..pools.paged_cache import paged_cache
from .activations import compiling, profile_run, reserved_run
from .blocks import OFFLOAD_SOURCE, block_rounding, offloaded, offloaded_layers
from .blocks import SOURCE as BLOCKS_SOURCE
from .draft import draft, drafted_tokens
from .settings import Graphs, captures_nccl, graphs, loaded, unlinked
from .states import state_blocks, state_bytes, with_states
from .weights import (
    PADDING_SOURCE,
    WIDER_SOURCE,
    cached_latent,
    expanded_head,
    latent_copies,
    lora_buffers,
    made_wider,
    padded_experts,
    rotary_products,
    tables,
)

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...allocator.runtime import Neighbours, Overhead
    from ...terms import Term
    from ..pools.paged_cache import PagedCache
    from .activations import ProfileRun
    from .settings import Settings

_PENALTIES = "vllm/v1/worker/gpu/sample/penalties.py"
_COMPILED = "torch/_inductor/standalone_compile.py autotune_at_compile_time"

RESIDUAL_MARGIN = 0.0075
"""Share of a card by which a start may take less or more than the bounds of its parts say: a deviation of the whole.

With it 179 of 189 pools that vLLM logged, in bytes or in tokens, lie in the interval, 170 without (benchmarks/accuracy,
the fresh logs of the first to the seventh round; those of later rounds and of ../shared/data were left out, and are
scored).
"""


class RankMemory(NamedTuple):
    """What one rank holds beside the cache.

    `weights_memory` is the checkpoint's weights that stay on the GPU, and what differs from it: the rotary tables,
    which the engine counts with the model it has loaded, what its kernels make of the weights, what torch's allocator
    rounds their blocks up by, and what is moved to host memory. `lora_buffers` are room for adapters, `workspaces`
    what torch's allocator keeps besides: cuBLAS's and the sampler's states. `compiling` is there before the profile
    run, where a start compiles the model. `unused_segments` of those that the run opened are free at its peak and count
    all the same, where the release asks the driver. `token` is a token's cache, layer by layer. `gathering` is what
    torch's communicator takes beside vLLM's own, expected and at the most, `reducing` its own; `connecting` what all of
    them are expected to take, where their sum is known. `wider` is what a checkpoint that is known by its name alone
    may take more, `residual_margin` what a start may differ by beyond all that, `halves` 2 where the cache may hold
    twice the tokens, as fp8 that nothing at hand tells of.
    """

    weights_memory: tuple[Term, ...]
    lora_buffers: tuple[Term, ...]
    workspaces: tuple[Term, ...]
    run: ProfileRun
    compiling: tuple[Term, ...]
    unused_segments: int
    graphs: Graphs
    overhead: Overhead
    settings: Settings
    cache: PagedCache
    token: tuple[Product, ...]
    gathering: tuple[int, int]
    reducing: int
    connecting: int | None
    neighbours: Neighbours
    wider: int
    residual_margin: int
    halves: int

    @property
    def weights(self) -> int:
        """Bytes of weights and adapters."""
        return total(self.weights_memory) + total(self.lora_buffers)

    @property
    def resident(self) -> int:
        """Bytes inside torch's allocator that are not the run's."""
        return self.weights + total(self.workspaces)

    @property
    def compiles(self) -> bool:
        """Whether compiling takes more than the run, so that a first start has less memory for the cache than later."""
        return total(self.compiling) > self.run.total

    @property
    def torch_peak_increase(self) -> int:
        """The expected peak above the weights while memory is measured: compiling for the run, or the run."""
        return max(self.run.total, total(self.compiling))

    @property
    def drift(self) -> int:
        """Bytes that others take of the memory while it is measured: the middle between the least and the most."""
        return sum(self.neighbours.drift) // 2

    @property
    def context_increase(self) -> int:
        """Expected bytes of the CUDA context that count against the budget: all, or none where it comes before."""
        return self.overhead.context if self.settings.profile.context_in_budget else 0

    @property
    def nccl_increase(self) -> int:
        """Expected bytes of communicators that count against the budget."""
        return self.nccl if self.settings.profile.nccl_in_budget else self.expected_gathering

    @property
    def non_torch_increase(self) -> int:
        """Expected bytes outside torch that count against the budget: all that is not in `initial_snapshot`."""
        return self.context_increase + self.overhead.libraries + self.nccl_increase + self.drift

    @property
    def expected_gathering(self) -> int:
        """Expected bytes of torch's communicator; none where both count: they are expected to take what one does."""
        if self.settings.profile.nccl_in_budget:
            return 0
        return self.gathering[0] if self.connecting is None else min(self.gathering[0], self.connecting)

    @property
    def nccl(self) -> int:
        """Expected bytes of vLLM's own communicator; where a sum is known, that falls to the one that counts."""
        if self.connecting is None:
            return self.overhead.nccl
        counts = self.settings.profile.nccl_in_budget or not self.gathering[0]
        return min(self.overhead.nccl, self.connecting) if counts else 0

    @property
    def runtime(self) -> tuple[Term, ...]:
        """What is expected outside torch in all, each part with its measurement."""
        parts = (
            (self.overhead.context, "CUDA context", "context"),
            (self.overhead.libraries, "libraries", "libraries"),
            (self.nccl, "NCCL", "NCCL"),
            (self.expected_gathering, "NCCL of torch's own communicator", "NCCL"),
        )
        return tuple(
            line("runtime", size, f"{label}, measured", self.overhead.source_of(name))
            for size, label, name in parts
            if size
        )

    @property
    def initial_snapshot(self) -> int:
        """Expected bytes that the GPU holds before the engine takes its baseline: context, in newer versions NCCL."""
        context = 0 if self.settings.profile.context_in_budget else self.overhead.context
        return context + (0 if self.settings.profile.nccl_in_budget else self.nccl)

    @property
    def non_torch_bounds(self) -> tuple[int, int]:
        """The least and the most that may count against the budget outside torch.

        At the least none of NCCL: GPUs that do not reach each other's memory keep its buffers in host memory (NCCL
        2.27 src/transport/shm.cc). At the most all of it, also where it exists before the baseline: an algorithm is
        connected with its first use (NCCL 2.22), which may be the profile run. Memory that the processor shares drifts.
        What others hold counts where no baseline is taken.
        """
        low, high = self.overhead.low - self.overhead.nccl_range[0], self.overhead.high
        if not self.settings.profile.context_in_budget:
            low, high = low - self.overhead.context_range[0], high - self.overhead.context_range[1]
        else:
            high += max(0, self.neighbours.held[1] - self.overhead.context_range[1])
        if self.settings.profile.nccl_in_budget:
            high += self.gathering[1]
        return low + self.neighbours.drift[0], high + self.neighbours.drift[1]

    @property
    def outside_budget(self) -> int:
        """The most that lies beside the budget: what is there before the baseline, and is not measured."""
        context = 0 if self.settings.profile.context_in_budget else self.overhead.context_range[1]
        return context + (0 if self.settings.profile.nccl_in_budget else self.reducing)

    @property
    def most_graphs(self) -> int:
        """The most bytes of all graphs: of a size that is captured twice, each as much as the larger measured."""
        whole = self.graphs.high * self.settings.whole_graphs // max(1, self.settings.graph_sizes)
        return self.graphs.high + whole

    @property
    def request(self) -> Product:
        """The cache that one request of `max_model_len` tokens may take, with the block vLLM keeps back."""
        chosen, cache = self.settings, self.cache
        blocks = cache.request_blocks(chosen.max_model_len, chosen.in_flight), "blocks"
        return Product(f"one request of {chosen.max_model_len:,} tokens", cache.block_bytes, (blocks,))

    @property
    def request_bytes(self) -> int:
        """The same in bytes."""
        return round(self.request.size)


def rank_memory(job: Job, model: Model, gpu: Gpu | None, chosen: Settings) -> RankMemory:
    """What one rank of a job holds."""
    given = job.serving
    dtype = serving_dtype(job, model)
    served = job if job.weights.dtype else job.with_changes({"weights.dtype": dtype})
    own = ("base", "buffer")
    whole = (
        item for item in parameters(served, model) if item.part in own and not (chosen.pools and item.role == "head")
    )
    target = loaded(whole, job, model)
    drafted, draft_caches = draft(served, model)
    found = (*target, *drafted)
    element = max(2.0, dtype_bytes(dtype))
    plan = job.parallelism
    stored = cache_dtype(job, model)
    width = cache_bytes(stored, dtype, model.shape.head_dim + model.shape.v_head_dim)
    version = given.version or job.versions.get("vllm")
    padded = padded_experts(target, served, model, gpu)
    limit = round(given.cpu_offload_gb * GIB)
    elsewhere, copied = offloaded_layers(found, limit)
    copied = copied if COPIES_OFFLOADED.at(chosen.version) else 0
    caches = tuple(
        _latent_as_stored(cache, model, width, version, stored)
        for cache in with_states((*layer_caches(model), *draft_caches), model, drafted_tokens(job, model))
    )
    if not chosen.profile.hybrid_cache and any(cache.grows and cache.window is None for cache in caches):
        caches = tuple(cache._replace(window=None) for cache in caches)
    rounding = block_rounding([*padded, *drafted], policy(job), limit)
    made = (
        *rotary_products(model, element, copies=tables(model, version)),
        *latent_copies(served, model, version, element, elsewhere),
        Product("experts, padded for their kernel", allocated(padded) - allocated(target), source=PADDING_SOURCE),
        Product("what is made wider than it is stored", made_wider(model, found), source=WIDER_SOURCE),
        Product("torch's blocks above the weights' bytes", rounding, source=BLOCKS_SOURCE),
        Product("moved to main memory", -offloaded(found, limit), source=OFFLOAD_SOURCE),
    )
    run = profile_run(model, chosen, element, plan.tensor, expert_tensor(job), plan.data or 1, copied)
    requests = (chosen.max_num_seqs, "requests"), model.shape.vocabulary
    states = Product("states of the sampler", chosen.samplers.runs.states, requests)
    opened = reserved_run(model, chosen, element, plan.tensor, policy(job)) if chosen.profile.by_driver else None
    return RankMemory(
        weights_memory=(*weights(found), *terms("weights", made)),
        lora_buffers=tuple(lora_buffers(job, model, element)),
        workspaces=(*runtime.workspace_terms(job, gpu), *terms("buffers", (states,), _PENALTIES)),
        run=run,
        compiling=tuple(terms("activations", compiling(model, chosen, element, plan.tensor), _COMPILED)),
        unused_segments=max(0, (opened or -copied) + copied - run.total),
        graphs=graphs(model, chosen.graph_sizes, nccl=captures_nccl(job, gpu)),
        overhead=runtime.process_overhead(gpu, job),
        settings=chosen,
        cache=compressed_pool(model, plan.pipeline, version)
        if compresses(model.shape)
        else paged_cache(
            caches,
            width,
            chosen.block_size,
            tensor=plan.tensor,
            pipeline=plan.pipeline,
            group_ratio=chosen.profile.group_ratio,
            state=state_bytes(model, version),
            convolution=element,
            state_blocks=state_blocks(model, given.prefix_caching, version, drafted_tokens(job, model)),
        ),
        token=token_products(caches, width, plan.tensor, plan.pipeline),
        gathering=runtime.gathering(job),
        reducing=runtime.reducing(job),
        connecting=runtime.unlinked(job) if unlinked(gpu) else None,
        neighbours=runtime.neighbours(gpu),
        wider=wider_perhaps(model, found),
        residual_margin=round(RESIDUAL_MARGIN * gpu.total) if gpu is not None else 0,
        halves=2 if fp8_perhaps(job, model) else 1,
    )


def _latent_as_stored(
    cache: LayerCache, model: Model, width: float, version: str | None, dtype: str | None
) -> LayerCache:
    """The latent of a token in cache elements, as vLLM pads and packs it."""
    if not cache.latent:
        return cache
    if head := expanded_head(model, version):
        return cache._replace(latent=0, heads=model.shape.heads, head_elements=2 * head)
    index = max(0, cache.latent - model.shape.kv_lora_rank - model.shape.qk_rope_head_dim)
    size = cached_latent(model, cache.latent - index, index, width, version, dtype)
    return cache._replace(latent=math.ceil(size / width))


def serving_dtype(job: Job, model: Model) -> str:
    """The dtype vLLM and SGLang compute in: `auto` serves float32 checkpoints in 16 bits (vllm/config/model.py, sglang
    0.5.18 srt/configs/model_config.py `_get_and_verify_dtype`)."""
    dtype = base_dtype(job, model)
    if job.weights.dtype is None and dtype in ("float32", "float64"):
        return "bfloat16"
    return dtype
