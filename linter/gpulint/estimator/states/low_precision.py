"""Linear layers that multiply in 8 or 4 bits while they train, as `precision.compute` names them.

Weights and gradients stay as they are without it; what comes on top differs by library. torchao casts both operands of
every product and drops the copies (torchao/float8/float8_linear.py saves the 16-bit operands). Transformer Engine keeps
an 8-bit copy of each weight and its transpose between micro batches (transformer_engine/pytorch/module/base.py
`get_weight_workspace`), and saves an 8-bit copy of each input, or its transpose, in the place of the 16-bit one
(module/linear.py 1.x: `saved_inputmat` or `saved_inputmat_t`, never both).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...upstream.stack import Stack
from ..estimate import NotEstimable
from .parameters import parameters

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model

COPIES = {"float8": (1, 1.0), "mxfp8": (1, 1.0 + 1 / 32), "nvfp4": (1, 0.5 + 1 / 16), "float8-te": (2, 1.0)}
"""Copies of a weight, and bytes of one element with its share of the scales (blocks of 32 for MXFP8, 16 for NVFP4)."""

KEPT = frozenset({"float8-te"})
"""What keeps the copies of all weights; the others hold those of the product in hand."""


def saved(job: Job) -> int:
    """Bytes an element of what a product saves of its input; 0 for those it came with."""
    return 1 if job.precision.compute in KEPT else 0


class Workspace(NamedTuple):
    """Bytes for 8- and 4-bit operands: as expected, and by how much less it may be."""

    size: int = 0
    slack: int = 0


def workspace(job: Job, model: Model) -> Workspace:
    """Bytes of the operands' copies on one rank.

    Kept ones: copies x bytes x elements of all linear weights. Else those of the largest weight and of its input, both
    of which may be gone at the peak. Raises NotEstimable for a name that is not known.
    """
    name = job.precision.compute
    if name is None:
        return Workspace()
    if name not in COPIES:
        raise NotEstimable(f"training in {name} is not known")
    copies, width = COPIES[name]
    found = [item for item in parameters(job, model) if item.layers is not None and len(item.shape) > 1]
    if name in KEPT:
        size = round(copies * width * sum(item.elements for item in found if item.part == "base"))
        return Workspace(size, size)
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0)
    most = max((item.size + tokens * item.shape[-1] for item in found), default=0)
    return Workspace(round(copies * width * most), round(copies * width * most))


def foreign(job: Job) -> str:
    """The 16-bit dtype that autocast does not compute in; none where one dtype is put on the whole model before.

    DeepSpeed's engine does that (deepspeed/runtime/engine.py `_configure_distributed_model`), and so do frameworks that
    load checkpoints into models of their own.
    """
    if Stack(job).native or job.parallelism.zero is not None:
        return ""
    return {"bfloat16": "float16", "float16": "bfloat16"}.get(job.precision.autocast or "", "")
