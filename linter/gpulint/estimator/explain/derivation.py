"""The arithmetic of the static components, as lines that a reader can redo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..estimate import Term
from ..states import storage
from ..states.buffers.stable_embedding import label
from ..states.gradients import gradient_dtype
from ..states.optimizer import step_temporaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Offload
    from ..allocator.runtime import Overhead
    from ..states.optimizer import Item, Spec, States
    from ..states.parameter import Parameter
    from ..states.ranks import Ranks

_PARTS = {"base": "weights", "buffer": "weights", "adapter": "adapter", "copy": "adapter"}
_NOUNS = {
    "base": "parameters",
    "buffer": "buffer elements",
    "adapter": "adapter parameters",
    "copy": "parameters of trained copies (modules_to_save)",
}
_DTYPES = "dtype of the weights as loaded"
_BLOCKS = "c10/cuda/CUDACachingAllocator.cpp round_size"
_PACKED = "packed weights with their scales and code tables (packings.json)"


def weights(found: Sequence[Parameter], over: Ranks | None = None) -> list[Term]:
    """One line for each dtype and part: bytes x elements (/ ranks, fewer for experts that are divided already)."""
    groups: dict[tuple[str, bool, str, str, int], list[Parameter]] = {}
    for item in found:
        dtype, by = "" if item.packed else _dtype(item), over.of(item) if over is not None else 1
        groups.setdefault((item.part, item.packed, dtype, label(item), by), []).append(item)
    lines = []
    for (part, packed, dtype, said, by), items in groups.items():
        if packed:
            lines += _packed(part, items, said, over, by)
            continue
        count, whole = sum(item.elements for item in items), sum(item.allocated for item in items)
        size = whole if over is None else over.size(items)
        formula = f"{_width(dtype):g} B ({dtype}) x {count:,} {_NOUNS[part]}" + (
            "" if over is None else f" / {by} GPUs"
        )
        rest = size - int(_width(dtype) * count) if over is None else 0
        lines.append(Term(_PARTS[part], formula, size - rest, _DTYPES, said))
        if rest:
            lines.append(Term(_PARTS[part], f"{rest:,} B", rest, _BLOCKS, "each tensor in blocks of 512 B"))
    return lines


def _packed(part: str, items: Sequence[Parameter], said: str, over: Ranks | None, by: int) -> list[Term]:
    """Codes, and beside them their scales and tables: whole on each GPU, or in one line where they are divided too."""
    count, whole = sum(item.elements for item in items), sum(item.allocated for item in items)
    codes, share, where = sum(item.copies * item.pieces[0] for item in items), "", ""
    size, beside = codes, whole - codes
    if over is not None:
        beside = 0 if over.scales else sum(item.copies * storage.total(item.pieces[1:]) for item in items)
        codes = whole if over.scales else codes
        size, share, where = over.size(items) - beside, f" / {by} GPUs", ", whole on each GPU"
    formula = f"{codes / max(1, count):.7g} B x {count:,} packed {_NOUNS[part]}{share}"
    lines = [Term(_PARTS[part], formula, size, _PACKED, said)]
    if beside:
        lines.append(Term(_PARTS[part], f"{beside:,} B", beside, _PACKED, f"scales and tables{where}"))
    return lines


def _dtype(item: Parameter) -> str:
    """Masks are bytes whatever the weights are."""
    return "bool" if item.role == "mask" else item.dtype


def _width(dtype: str) -> float:
    return 1 if dtype == "bool" else storage.dtype_bytes(dtype)


def gradients(trained: Sequence[Parameter], job: Job, over: Ranks | None = None) -> list[Term]:
    """Bytes x trainable elements (/ ranks), by dtype of the gradient."""
    groups: dict[tuple[str, int], int] = {}
    for item in trained:
        group = gradient_dtype(item, job), over.of(item) if over is not None else 1
        groups[group] = groups.get(group, 0) + item.elements
    return [
        Term(
            "gradients",
            f"{storage.dtype_bytes(dtype):g} B ({dtype}) x {count:,} trainable parameters"
            + ("" if by == 1 else f" / {by} GPUs"),
            int(-(-count * storage.dtype_bytes(dtype) // by)),
            "autograd: a gradient in the dtype of its parameter"
            if job.precision.gradients is None
            else "precision.gradients",
        )
        for (dtype, by), count in groups.items()
    ]


def optimizer(
    tensors: Sequence[Item], spec: Spec, kept: States, job: Job, masters: int = 0, ranks: int = 1
) -> list[Term]:
    """Masters, states and the step's temporaries."""
    count = sum(item.copies * item.size for item in tensors)
    share = "" if ranks == 1 else f" (share of one of {ranks} GPUs)"
    lines = []
    if masters:
        lines.append(
            Term(
                "optimizer",
                f"{masters / max(1, count):g} B x {count:,} master weights{share}",
                masters,
                "precision.master_weights",
            )
        )
    name = job.optimizer.name
    if kept.allocated:
        each = kept.allocated / max(1, count)
        formula = f"{each:.5g} B x {count:,} elements: states of {name}{share}"
        lines.append(Term("optimizer", formula, kept.allocated, spec.source))
    if kept.paged:
        formula = (
            f"{kept.paged / max(1, count):.5g} B x {count:,} elements: states of {name} in managed memory, on the GPU"
            " while there is room and in main memory otherwise"
        )
        lines.append(Term("optimizer", formula, 0, spec.source))
    if kept.host:
        formula = f"{kept.host / max(1, count):.5g} B x {count:,} elements: states of {name} in main memory"
        lines.append(Term("optimizer", formula, 0, spec.source))
    if kept.temporary:
        whole, label = step_temporaries(tensors, spec), f"temporaries of {name}'s step, freed after it"
        formula = whole.formula if whole.size == kept.temporary else f"{kept.temporary:,} B"
        lines.append(Term("optimizer", formula, kept.temporary, spec.source, label, "optimizer_step"))
    return lines


def offloaded(size: int, away: Offload, job: Job, ratio: float) -> Term:
    """Master weights and states of `size` bytes, of which a share `ratio` waits elsewhere."""
    where = "main memory" if away.device == "cpu" else "files (NVMe)"
    label = f"master weights and states of {job.optimizer.name}; the rest is in {where}"
    return Term("optimizer", f"{1 - ratio:g} x {size:,} B", int((1 - ratio) * size), "offload_optimizer", label)


def ddp_buckets(size: int) -> Term:
    """DDP's flat copies of the gradients."""
    return Term(
        "buffers",
        f"{size:,} B",
        size,
        "torch.nn.parallel.DistributedDataParallel: gradient_as_bucket_view is off by default",
        "all gradients once more in DDP's buckets",
    )


def outside(overhead: Overhead) -> list[Term]:
    """What lies outside torch, each part with its measurement."""
    parts = ("CUDA context", overhead.context), ("libraries", overhead.libraries), ("NCCL", overhead.nccl)
    return [
        Term("runtime", f"{size:,} B", size, overhead.source_of(label.split()[-1]), f"{label}, measured")
        for label, size in parts
        if size
    ]
