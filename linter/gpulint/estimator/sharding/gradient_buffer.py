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
from ..states import optimizer
from ..states.gradients import accumulating, gradient_shards
from ..states.loading import loading_terms
from ..states.parameters import elements
from ..states.ranks import Ranks, per_node, ranks
from ..states.weights import weights
from ..terms import Term, line
from .sharded_state import ShardedState

if TYPE_CHECKING:
    from ...job.job import Job
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter


_SOURCE = "Megatron-LM core/distributed/param_and_grad_buffer.py; deepspeed runtime/bf16_optimizer.py"
_BESIDE = "16-bit gradients beside the buffer they are added to"
_IN_HAND = "the largest 16-bit gradient before it is added"


@dataclass(slots=True)
class GradBufferState(ShardedState):
    """A buffer that 16-bit gradients are added to and that lies beside them.

    beside    all 16-bit gradients; `kept`: they lie there from the second micro step on, filled with zeros
    in_hand   the largest of them, which is freed once it is added
    """

    beside: int = 0
    kept: bool = False
    in_hand: int = 0

    def gradients_at(self, done: int) -> list[Term]:
        """The buffer, and the 16-bit gradients of `done` trainable elements."""
        if self.kept or not self.trainable or done >= self.trainable or not self.beside:
            return self.all_gradients
        missing = self.beside * (self.trainable - done) // self.trainable
        formula = f"{self.beside:,} B x {done:,} / {self.trainable:,} trainable elements"
        made = Term("gradients", formula, self.beside - missing, _SOURCE, _BESIDE)
        return [*self.all_gradients[:-1], *([made] if made.size else [])]

    def buffers_at(self, candidate: PeakCandidate) -> list[Term]:  # noqa: ARG002
        """The gradient in hand."""
        return [line("buffers", self.in_hand, _IN_HAND, _SOURCE)] if self.in_hand else []


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


def grad_buffer_state(job: Job, found: tuple[Parameter, ...]) -> GradBufferState:
    """The state with a gradient buffer. N data-parallel ranks, T trainable elements on the rank.

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
    masters = 4 * share
    if away:
        kept = [
            optimizer.offloaded(states.allocated + masters, zero.offload_optimizer, job, zero.offload_optimizer.ratio)
        ]
    else:
        kept = optimizer.state_terms(items, spec, states, job, masters, over.dense)
    buffer = gradient_shards(trained, job, Ranks(1, 1))
    return GradBufferState(
        resident=[*weights(found), *kept],
        all_gradients=[*buffer, *([line("gradients", beside, _BESIDE, _SOURCE)] if beside else [])],
        loading=loading_terms(found, job),
        host=per_node(job) * (int((1 - there) * (masters + states.raw)) if away else states.host),
        trainable=elements(trained),
        accumulating=True,
        persistent_grad_buffer=True,
        beside=beside,
        kept=not zero.stage or accumulating(job) or not Stack(job).does(FREES_IN_STEP),
        in_hand=in_hand,
    )
