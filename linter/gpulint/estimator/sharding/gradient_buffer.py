"""Optimizers that add up gradients in one buffer: whole 16-bit weights, fp32 shards of masters and states.

Megatron's DistributedDataParallel with or without its distributed optimizer (Megatron-LM
core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py, core 0.14), and DeepSpeed's
BF16_Optimizer (deepspeed 0.9.0 to 0.19.8 runtime/bf16_optimizer.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...upstream.deepspeed import FREES_ADDED_GRADIENTS, FREES_IN_STEP
from ...upstream.stack import Stack
from ..estimate import Term
from ..explain import derivation
from ..states import optimizer
from ..states.gradients import accumulating, gradient_dtype
from ..states.loading import loading
from ..states.parameters import allocated, elements
from ..states.ranks import Ranks, per_node, ranks
from ..states.storage import dtype_bytes
from .layout import Layout

if TYPE_CHECKING:
    from ...job.job import Job
    from ..states.parameter import Parameter


_SOURCE = "Megatron-LM core/distributed/param_and_grad_buffer.py; deepspeed runtime/bf16_optimizer.py"
_BESIDE = "16-bit gradients beside the buffer they are added to"
_IN_HAND = "the largest 16-bit gradient before it is added"


@dataclass(slots=True)
class SummedLayout(Layout):
    """A buffer that 16-bit gradients are added to and that lies beside them.

    beside   bytes of all 16-bit gradients; `kept`: they lie there from the second micro step on, filled with zeros
    """

    beside: int = 0
    kept: bool = False

    def gradient_bytes(self, done: int) -> int:
        """The buffer, and the 16-bit gradients of `done` trainable elements."""
        if self.kept or not self.trainable:
            return self.gradients
        missing = self.trainable - min(done, self.trainable)
        return self.gradients - self.beside * missing // self.trainable


def buffered(job: Job) -> bool:
    """Whether gradients go into one buffer: under Megatron, and where DeepSpeed accumulates those of bf16 in float32.

    DeepSpeed takes its BF16_Optimizer at stage 0, and at stage 1 without offload (runtime/engine.py
    `_do_optimizer_sanity_check`, 0.18.2).
    """
    zero = job.parallelism.zero
    if zero is None:
        return False
    if zero.library == "megatron":
        return True
    fits = zero.stage == 0 or (zero.stage == 1 and zero.offload_optimizer.device == "none")
    brain = "bfloat16" in (job.weights.dtype, job.precision.autocast)
    return fits and brain and job.precision.master_weights and job.precision.gradients == "float32"


def buffer_layout(job: Job, found: tuple[Parameter, ...]) -> Layout:
    """The Layout with a gradient buffer. N data-parallel ranks, T trainable elements on the rank.

    gradients   a buffer of T elements in the reduce dtype, there before the first step and never freed. Megatron's
                weight gradient matmul adds into it (`gradient_accumulation_fusion`). DeepSpeed adds the 16-bit
                gradients and keeps them: at stage 1 until the step is done (always before 0.16.5), at stage 0 for
                good; with `immediate_grad_update` 0.19.8 frees each as it is added, so that one of them exists
    optimizer   fp32 masters and states of T/N elements, of T r/N where r groups of ranks hold them each (`replicas`;
                core/parallel_state.py, the distributed optimizer's instances); of T under Megatron without its
                distributed optimizer (stage 0), while DeepSpeed divides them at either stage
    offload     `ratio` of masters and states is in main memory (core/optimizer/cpu_offloading/hybrid_optimizer.py)
    The optimizer reads its part of the buffer in place, and gathers into the weights' own storage: neither step nor
    gather takes more.
    """
    zero = job.parallelism.zero
    assert zero is not None
    fused = zero.library == "megatron"
    trained = [item for item in found if item.trainable]
    sharing = max(1, job.data_parallel // max(1, zero.replicas))
    over = ranks(job, sharing) if zero.stage or not fused else Ranks(1, 1)
    share = over.elements(trained)
    spec = optimizer.of_job(job)
    items = [optimizer.Item((share,), 1, "float32", flat=True)] if share else []
    states = optimizer.states(items, spec, job)
    away = zero.offload_optimizer.device != "none"
    released = zero.immediate_gradients and Stack(job).does(FREES_ADDED_GRADIENTS)
    in_hand = max((item.size * int(item.element_bytes) for item in trained), default=0) if released and not fused else 0
    beside = 0 if released or fused else sum(item.elements * int(item.element_bytes) for item in trained)
    there = 1 - zero.offload_optimizer.ratio if away else 1.0
    built = SummedLayout(
        weights=allocated(item for item in found if item.part in ("base", "buffer")),
        adapter=allocated(item for item in found if item.part in ("adapter", "copy")),
        optimizer=int(there * (states.allocated + 4 * share)),
        host=per_node(job) * (int((1 - there) * (4 * share + states.raw)) if away else states.host),
        gradients=beside + int(sum(item.elements * dtype_bytes(gradient_dtype(item, job)) for item in trained)),
        trainable=elements(trained),
        buffers=in_hand,
        load=loading(found, job),
        accumulating=True,
        lasting=True,
        beside=beside,
        kept=not zero.stage or accumulating(job) or not Stack(job).does(FREES_IN_STEP),
    )
    built.terms = [
        *derivation.weights(found),
        *derivation.gradients(trained, job),
        *([] if away else derivation.optimizer(items, spec, states, job, masters=4 * share, ranks=over.dense)),
    ]
    if away:
        size, ratio = states.allocated + 4 * share, zero.offload_optimizer.ratio
        built.terms.append(derivation.offloaded(size, zero.offload_optimizer, job, ratio))
    if beside:
        built.terms.append(Term("gradients", f"{beside:,} B", beside, _SOURCE, _BESIDE))
    if in_hand:
        built.terms.append(Term("buffers", f"{in_hand:,} B", in_hand, _SOURCE, _IN_HAND))
    return built
