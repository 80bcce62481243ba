"""Who divides the state of a training job: nobody (one GPU, DDP), ZeRO, a flat gradient buffer, or FSDP.

Optimizers that add up gradients in one buffer: whole 16-bit weights, fp32 shards of masters and states.

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
from ..states.buffers.torchtune import template
from ..states.gradients import accumulating, gradient_bytes, gradient_shards, gradients, largest_gradient
from ..states.loading import loading_terms
from ..states.optimizer_step import step_terms
from ..states.parameter import Ranks, per_node, ranks
from ..states.parameters import elements, parameters
from ..states.weights import weights
from ..terms import Term, line
from .one_process import replicated
from .sharded_state import ShardedState, own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.model import Model
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter


def sharded_state(job: Job, model: Model) -> ShardedState:
    """The state of a training job on the rank that holds most.

    States that wait in main memory between steps (prime-rl `optim_cpu_offload`, trainer/optim/state_offload.py) come
    to the GPU whole for the step, and leave it behind the first one, too.
    """
    state = _divided(job, model)
    if job.optimizer.states_offloaded_between_steps and state.optimizer:
        moved = own("optimizer", state.resident)
        note = "states are on the GPU for the step alone, between steps in main memory"
        state.step_resident_states = [*moved, Term("optimizer", note, 0, "prime-rl trainer/optim/state_offload.py")]
        state.resident = [term for term in state.resident if term not in moved]
        state.host += per_node(job) * sum(term.size for term in moved)
    return state


def _divided(job: Job, model: Model) -> ShardedState:
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    found = parameters(job, model)
    if zero is not None and buffered(job):
        return grad_buffer_state(job, found)
    if zero is not None and zero.stage == 3:
        from .zero3 import zero3_state

        return zero3_state(job, model, found)
    if zero is not None and (zero.stage > 0 or job.precision.master_weights):
        from .zero import zero12_state

        return zero12_state(job, found)
    if fsdp is not None and fsdp.sharding != "no_shard":
        from .fsdp import fsdp_state

        return fsdp_state(job, model, found)
    state = replicated_state(job, found)
    state.needs_to_load(
        template(found, job, model), "the layer that the others are copied from", "torchtune 0.5 modules/transformer.py"
    )
    return state


_BUCKETS = "torch.nn.parallel.DistributedDataParallel: gradient_as_bucket_view is off by default"


def replicated_state(job: Job, found: tuple[Parameter, ...]) -> ShardedState:
    """One GPU, or data parallelism, where each rank holds everything.

    Weights, gradients and states per tensor in 512-byte blocks. DDP keeps flat gradient buckets from construction
    on; the parameters' gradients stay separate tensors unless `gradient_as_bucket_view` is set, whose saving is
    "equal to the total gradients size" (torch.nn.parallel.DistributedDataParallel, torch 2.13; accelerate's default
    is off). DataParallel sums the gradients of all GPUs into new tensors when a pass ends (one_process.py). Separate
    fp32 masters (Megatron, apex) add 4 B a trainable element to the optimizer.
    """
    trained = [item for item in found if item.trainable]
    spec = optimizer.of_job(job)
    tensors = optimizer.items(trained)
    masters = 0
    if job.precision.master_weights:
        masters = sum(item.copies * 4 * item.size for item in trained)
        tensors = [item._replace(dtype="float32") for item in tensors]
    states = optimizer.states(tensors, spec, job)
    state = ShardedState(
        resident=[*weights(found), *optimizer.state_terms(tensors, spec, states, job, masters)],
        all_gradients=gradients(trained, job),
        step_temporaries=step_terms(tensors, spec, job.optimizer.name),
        loading=loading_terms(found, job),
        paged=states.paged,
        host=per_node(job) * (states.host + states.paged),
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        first=_copied(trained, "head", job),
        last=_copied(trained, "embedding", job),
        accumulating=accumulating(job),
        in_backward=spec.in_backward,
    )
    if replicated(job):
        state.dp_reduce_buffer = state.gradients
    elif job.data_parallel > 1 and not spec.in_backward:
        label = "all gradients once more in DDP's buckets"
        state.step_buffers.append(line("buffers", state.gradients, label, _BUCKETS))
    return state


def _copied(trained: Sequence[Parameter], role: str, job: Job) -> tuple[int, int]:
    """Elements and bytes of the gradients of a module that PEFT saves: of 16 bits beside those of float32 adapters."""
    found = [item for item in trained if item.part == "copy" and item.role == role]
    return elements(found), gradient_bytes(found, job)


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
