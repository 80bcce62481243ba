"""Gradients: one for each trainable tensor, in its dtype or the one that the job states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.stack import Stack
from ...upstream.torch import ZEROED_GRADIENTS
from ..allocator.allocator import block_size
from ..terms import Term, line
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from .parameter import Parameter, Ranks

_BLOCKS = "c10/cuda/CUDACachingAllocator.cpp round_size"


def accumulating(job: Job) -> bool:
    """Whether gradients lie in memory while a micro-batch runs forward.

    Those of the earlier micro-batches of a step; before torch 2.0 those of the last step too, which `zero_grad` fills
    with zeros unless asked to free them (`set_to_none`, torch/optim/optimizer.py and torch/nn/modules/module.py).
    ZeRO and FSDP keep gradients of their own.
    """
    parallel = job.parallelism
    own = parallel.fsdp is not None or parallel.zero is not None
    return job.gradient_accumulation_steps > 1 or (not own and Stack(job).does(ZEROED_GRADIENTS))


def units_reduce(job: Job) -> bool:
    """FSDP makes new gradients of a whole unit beside those that it accumulates."""
    fsdp = job.parallelism.fsdp
    return fsdp is not None and fsdp.sharding != "no_shard"


def gradient_dtype(parameter: Parameter, job: Job) -> str:
    """autograd makes a gradient in the dtype of its leaf; `precision.gradients` overrides (fp32 accumulation)."""
    return job.precision.gradients or parameter.dtype


def gradient_bytes(trained: Sequence[Parameter], job: Job) -> int:
    """Bytes of the gradients of every trainable tensor, each in 512-byte blocks: elements x bytes of the dtype."""
    return sum(item.copies * block_size(int(item.size * dtype_bytes(gradient_dtype(item, job)))) for item in trained)


def gradients(trained: Sequence[Parameter], job: Job) -> list[Term]:
    """`gradient_bytes` by dtype of the gradient, and what the blocks have beyond the elements."""
    found = []
    for (dtype, _), items in _alike(trained, job).items():
        count = sum(item.elements for item in items)
        size = int(count * dtype_bytes(dtype))
        found.append(_term(job, dtype, count, size))
        if rest := gradient_bytes(items, job) - size:
            found.append(line("gradients", rest, "each tensor in blocks of 512 B", _BLOCKS))
    return found


def gradient_shards(trained: Sequence[Parameter], job: Job, over: Ranks) -> list[Term]:
    """One rank's share of the gradients in whole elements a tensor, by dtype and by the ranks that share them."""
    found = []
    for (dtype, by), items in _alike(trained, job, over).items():
        size = sum(int(-(-item.elements // by) * dtype_bytes(dtype)) for item in items)
        found.append(_term(job, dtype, sum(item.elements for item in items), size, by))
    return found


def flat_gradients(trained: Sequence[Parameter], job: Job, over: Ranks | None = None) -> list[Term]:
    """Gradients in one flat tensor, as wide as the widest: all of them, or one rank's share in whole elements."""
    if not trained:
        return []
    dtype = max((gradient_dtype(item, job) for item in trained), key=dtype_bytes)
    shared: dict[int, list[Parameter]] = {}
    for item in trained:
        shared.setdefault(over.of(item) if over is not None else 1, []).append(item)
    found = []
    for by, items in shared.items():
        count = sum(item.elements for item in items)
        share = count if over is None else over.elements(items)
        found.append(_term(job, dtype, count, int(share * dtype_bytes(dtype)), by))
    return found


def _alike(trained: Sequence[Parameter], job: Job, over: Ranks | None = None) -> dict[tuple[str, int], list[Parameter]]:
    found: dict[tuple[str, int], list[Parameter]] = {}
    for item in trained:
        key = gradient_dtype(item, job), over.of(item) if over is not None else 1
        found.setdefault(key, []).append(item)
    return found


def _term(job: Job, dtype: str, count: int, size: int, by: int = 1) -> Term:
    share = "" if by == 1 else f" / {by} GPUs"
    formula = f"{dtype_bytes(dtype):g} B ({dtype}) x {count:,} trainable parameters{share}"
    stated = job.precision.gradients is not None
    source = "precision.gradients" if stated else "autograd: a gradient in the dtype of its parameter"
    return Term("gradients", formula, size, source)


def largest_gradient(trained: Sequence[Parameter], job: Job) -> int:
    """Bytes of the gradient of the largest trainable tensor."""
    return max((int(item.size * dtype_bytes(gradient_dtype(item, job))) for item in trained), default=0)
