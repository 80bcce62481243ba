"""Memory of a GPU process that no tensor holds: CUDA context, loaded kernels, NCCL, and the cuBLAS workspace.

Context, libraries and NCCL lie outside torch's allocator: they are the component `runtime`, part of
`PerGpu.process` and not of `allocated`. The cuBLAS workspace is taken from torch's allocator and stays: it is in
`torch.cuda.max_memory_allocated()`, so an estimator adds `allocated_workspace` to the component `buffers` of every
phase that multiplies matrices.

The figures are published measurements (`runtime.json`, each with its source). Of the runs that the estimator is scored
on they rest on those that the benchmark marks as `seen` alone (docs/accuracy.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from ...units import KIB, MIB
from ...upstream import megatron
from ...upstream.behaviour import default_of
from ...upstream.serving import vllm
from ...upstream.stack import Stack
from ...upstream.torch import CUDA_12_2, LAZY_LOADING, NCCL_2_22
from ..terms import Term, line

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...job.job import Job

_TABLE = read_table(__file__, "runtime.json")


class Overhead(NamedTuple):
    """Bytes of one process outside torch's allocator, and what they rest on.

    `low`..`high` bounds the sum, `context_range` and `nccl_range` two of its parts; `sources` names the measurement
    behind each.
    """

    context: int
    libraries: int
    nccl: int
    low: int
    high: int
    sources: tuple[str, ...]
    context_range: tuple[int, int]
    nccl_range: tuple[int, int]

    @property
    def total(self) -> int:
        """The expected bytes: context, libraries and NCCL."""
        return self.context + self.libraries + self.nccl

    @property
    def source(self) -> str:
        """All sources in one line."""
        return "; ".join(self.sources)

    def source_of(self, part: str) -> str:
        """The sources of `context`, `libraries` or `NCCL`."""
        return "; ".join(source.partition(": ")[2] for source in self.sources if source.startswith(part))

    @property
    def terms(self) -> tuple[Term, ...]:
        """What lies outside torch, each part with its measurement."""
        parts = ("CUDA context", self.context), ("libraries", self.libraries), ("NCCL", self.nccl)
        return tuple(
            line("runtime", size, f"{label}, measured", self.source_of(label.split()[-1]))
            for label, size in parts
            if size
        )


class Neighbours(NamedTuple):
    """What a machine takes of a GPU's memory beside the job, in bytes, at the least and at the most.

    `drift` goes from free memory while an engine measures it, beside what its tensors and libraries take: its own
    processes' main memory, and what others take or give back. `held` is taken as the engine looks first, with its
    own context.
    """

    drift: tuple[int, int]
    held: tuple[int, int]


def neighbours(gpu: Gpu | None) -> Neighbours:
    """The rest of the machine, where the processor shares the memory; a desktop; nothing in a server.

    Free memory is `MemAvailable` where it is shared (vllm 0.11 utils/mem_utils.py `MemorySnapshot`; sglang 0.5.12
    srt/utils/common.py `get_available_gpu_memory`).
    """
    if gpu is None or not (gpu.unified or gpu.display):
        return Neighbours((0, 0), (0, 0))
    row = _TABLE["unified" if gpu.unified else "display"]
    drift, held = ((low * MIB, high * MIB) for low, high in (row.get("drift", (0, 0)), row["held"]))
    return Neighbours(drift, held)


def process_overhead(gpu: Gpu | None, job: Job) -> Overhead:
    """The overhead of one rank of `job` on `gpu` (None: any GPU, with the widest interval).

    Sum of the CUDA context (of each process that has one on the GPU), the kernels and handles that libraries load with
    first use, and NCCL where more than one GPU works together: one communicator for each kind of parallelism, of which
    the first is `expected` and the others only widen `high`, since PyTorch opens a communicator with its first
    collective; so does the all-to-all of expert parallelism in training. Of Megatron's, whose code says which groups a
    step uses, all are `expected`. Bytes.
    """
    context = _context(gpu, _torch(job))
    libraries = _row("libraries", gpu)
    high = context["high"] + libraries["high"]
    low = context["low"] + libraries["low"]
    sources = [f"context: {context['source']}", f"libraries: {libraries['source']}"]
    eager, torch = _TABLE["context_without_lazy_loading"], _torch(job)
    if not CUDA_12_2.at(torch):
        high += max(0, eager["high"] - context["high"])
        sources.append(f"context: {eager['source']}")
    others = job.hardware.contexts - 1
    low, high = low + others * context["low"], high + others * (high - libraries["high"])
    contexts = (low - libraries["low"], high - libraries["high"])
    nccl, expected, least, most = _communicator(job), 0, 0, 0
    if nccl is not None:
        least = nccl["low"]
        expected, most, named = _nccl(job, gpu, nccl, torch)
        sources += [f"NCCL: {source}" for source in named]
    return Overhead(
        context=job.hardware.contexts * context["expected"] * MIB,
        libraries=libraries["expected"] * MIB,
        nccl=expected * MIB,
        low=(low + least) * MIB,
        high=(high + most) * MIB,
        sources=tuple(sources),
        context_range=(contexts[0] * MIB, contexts[1] * MIB),
        nccl_range=(least * MIB, most * MIB),
    )


def _nccl(job: Job, gpu: Gpu | None, first: dict[str, Any], torch: str | None) -> tuple[int, int, list[str]]:
    """MiB of all communicators, at most, and their sources; `first` is the row of the widest one."""
    table, sizes = _TABLE, groups(job)
    further, pairs = table["nccl_further"], table["nccl_all_to_all"]
    exchange = job.parallelism.expert > 1 and job.kind == "training"
    if Stack(job).runs(megatron.NAME) and job.kind == "training":
        row = _row("nccl_megatron", gpu)
        expected = sum(row["two" if size == 2 else "more"] for size in sizes)
        return expected, len(sizes) * row["high"] + (pairs["high"] if exchange else 0), [row["source"]]
    each = further["high"] if NCCL_2_22.at(torch) else first["high"]
    high = first["high"] + each * (len(sizes) - 1)
    named = [first["source"], further["source"]]
    if exchange:
        return first["expected"], high - each + pairs["high"], [*named, pairs["source"]]
    return first["expected"], high, named


def gathering(job: Job) -> tuple[int, int]:
    """Bytes of the communicator by which vLLM's ranks gather logits: expected, and at the most; none for one rank.

    vLLM reduces by a communicator of its own. Its group has torch's as well, which opens in the profile run as logits
    are gathered (vllm 0.9.2 to 0.24 distributed/device_communicators/base_device_communicator.py `all_gather`,
    `gather`). Of releases before NCCL 2.22 the measurements of the first hold both.
    """
    if job.inference is None or job.inference.engine != "vllm" or job.parallelism.tensor < 2:
        return 0, 0
    further, first = _TABLE["nccl_further"], _communicator(job)
    if first is None or not NCCL_2_22.at(_torch(job)):
        return 0, 0
    return first["expected"] * MIB, further["high"] * MIB


def unlinked(job: Job) -> int | None:
    """Bytes that all communicators of a vLLM rank are expected to take on cards without NVLink (`nccl_unlinked`).

    None before the NCCL that was measured.
    """
    if not NCCL_2_22.at(_torch(job)):
        return None
    expected: int = _TABLE["nccl_unlinked"]["expected"]
    return expected * MIB


def reducing(job: Job) -> int:
    """The most bytes of the communicator by which vLLM's ranks reduce, as its first collective leaves it.

    One with every algorithm connected: that collective connects one (NCCL 2.22).
    """
    first = _communicator(job)
    if first is None:
        return 0
    if not NCCL_2_22.at(_torch(job)):
        return int(first["high"]) * MIB
    each: int = max(row["high"] for row in _TABLE["nccl_megatron"])
    return each * MIB


def groups(job: Job) -> list[int]:
    """The sizes of the groups of more than one GPU to which a rank belongs and for which it opens a communicator.

    One for each kind of parallelism. Megatron has more, a communicator each even where their ranks are the same
    (core/parallel_state.py `initialize_model_parallel`, core 0.13); these have a collective in every step or as the
    run starts:
    world            barriers and agreement on checkpoints
    tensor, pipeline, context
    data x context   gradients and weights
    data             the loss that is printed (training/utils.py `average_losses_across_data_parallel_group`)
    model            tensor x pipeline: whether the step succeeded, statistics of the log
    instance         the gradient norm under the distributed optimizer (core/optimizer/clip_grads.py)
    expert           tokens;  tensor x expert  their numbers;  expert data  gradients
    tensor x expert x pipeline   whether the experts' step succeeded
    """
    if job.world_size < 2:
        return []
    plan, data = job.parallelism, job.data_parallel
    sizes = [plan.tensor, plan.pipeline, plan.context, plan.expert]
    if Stack(job).runs(megatron.NAME) and job.kind == "training":
        inner, stage = plan.tensor if plan.expert_tensor is None else plan.expert_tensor, data * plan.tensor
        replicas = plan.zero.replicas if plan.zero is not None else 1
        sizes += [job.world_size, data, data // max(1, plan.context), plan.tensor * plan.pipeline]
        sizes += [job.world_size // max(1, replicas)] if plan.zero is not None and plan.zero.stage else []
        if plan.expert > 1:
            each = inner * plan.expert
            sizes += [each, each * plan.pipeline, stage // max(1, each)]
    elif job.kind == "training" or (plan.data or 1) > 1:
        sizes.append(data)
    return [size for size in sizes if size > 1]


WORKSPACE = "aten/src/ATen/cuda/CublasHandlePool.cpp"
"""Where torch makes cuBLAS's workspaces."""


def allocated_workspace(job: Job, gpu: Gpu | None) -> int:
    """Bytes of cuBLAS workspace inside torch's allocator."""
    handles, each = workspaces(job, gpu)
    return handles * each


def workspace_terms(job: Job, gpu: Gpu | None) -> list[Term]:
    """`allocated_workspace` as a term."""
    handles, each = workspaces(job, gpu)
    label = "cuBLAS workspaces, one a thread" if handles > 1 else "cuBLAS workspace"
    formula = f"{handles} x {each:,} B" if handles > 1 else f"{each:,} B"
    return [Term("buffers", formula, handles * each, WORKSPACE, label)]


def workspaces(job: Job, gpu: Gpu | None) -> tuple[int, int]:
    """How many cuBLAS workspaces there are, one for each handle and stream, and bytes of one.

    In training the main thread's and the autograd thread's, in inference the main thread's. 8.125 MiB each, 32 MiB on
    Hopper and Blackwell (`WORKSPACE`).
    """
    size: int = _row("cublas_workspace", gpu)["kib"]
    return (2 if job.kind == "training" else 1), size * KIB


def _communicator(job: Job) -> dict[str, Any] | None:
    """The measurement for the widest group; None for a single GPU or for processes that share nothing."""
    sizes = groups(job)
    if not sizes:
        return None
    rows: list[dict[str, Any]] = _TABLE["nccl" if NCCL_2_22.at(_torch(job)) else "nccl_before_2_22"]
    return next(row for row in rows if row["ranks"] == min(3, max(sizes)))


def _torch(job: Job) -> str | None:
    """The stated torch, or the one that a stated vLLM pins; None: a current one."""
    stated = job.versions.get("torch")
    engine = job.inference
    if stated or engine is None or engine.engine != "vllm":
        return stated
    version: str | None = default_of(vllm.PINS, Stack(job).version(vllm.NAME), "torch", None)
    return version


def _context(gpu: Gpu | None, torch: str | None) -> dict[str, Any]:
    """The context of a GPU's architecture, with every kernel loaded where torch is older than lazy loading."""
    context, before = _row("context", gpu), _TABLE["context_before_lazy_loading"]
    if LAZY_LOADING.at(torch):
        return context
    row = _of_architecture(before["rows"], gpu)
    return {**context, **row, "source": f"{row['source']}; {before['source']}"}


def _row(kind: str, gpu: Gpu | None) -> dict[str, Any]:
    """The row of the GPU's architecture in one of the tables."""
    return _of_architecture(_TABLE[kind], gpu)


def _of_architecture(rows: list[dict[str, Any]], gpu: Gpu | None) -> dict[str, Any]:
    """The row of the GPU's architecture; the last one is for the others."""
    if gpu is not None:
        for row in rows:
            if gpu.architecture in row["architectures"]:
                return row
    return rows[-1]
