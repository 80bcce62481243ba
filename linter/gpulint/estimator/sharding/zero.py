"""DeepSpeed ZeRO: the flat partition of a rank, and stages 0 to 2; stage 3 is in zero3.py.

Source of every rule here: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py, runtime/engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...upstream.deepspeed import BUCKETS_WITH_GRADIENT
from ...upstream.stack import Stack
from ..states import optimizer
from ..states.gradients import flat_gradients, gradient_dtype, largest_gradient
from ..states.loading import loading_terms
from ..states.optimizer_step import step_temporaries, step_terms
from ..states.parameter import Ranks, per_node, ranks
from ..states.parameters import elements
from ..states.storage import dtype_bytes
from ..states.weights import weights
from ..terms import Term, line, total
from . import host
from .sharded_state import AUTOGRAD, ShardedState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter

STAGE12 = "deepspeed 0.19.8 runtime/zero/stage_1_and_2.py"


@dataclass(slots=True)
class Zero12State(ShardedState):
    """Stages 0 to 2: whole 16-bit weights, one flat fp32 partition of the trainable ones.

    buckets     the reduce buckets, and the largest gradient of a layer before it is copied into one
    at_once     the buckets are there from the start of every backward pass, else from its first gradient on
    partition   this rank's partition of the gradients
    full        the gradients stay whole until the pass ends (stages 0 and 1)
    on_host     the reduced gradients go straight to host memory
    """

    buckets: tuple[Term, ...] = ()
    at_once: bool = False
    partition: list[Term] = field(default_factory=list)
    full: bool = False
    on_host: bool = False

    def gradients_at(self, done: int) -> list[Term]:
        """Stage 1 keeps whole gradients; stage 2 its partition from the first one on, twice while accumulating.

        Stage 1 makes the partition beside the whole gradients when the pass ends.
        """
        if self.full:
            whole = super(Zero12State, self).gradients_at(done)
            reduced = done >= self.trainable > 0 and not self.on_host
            size = total(self.partition)
            made = line("gradients", size, "the rank's partition, reduced", STAGE12)
            return [*whole, made] if reduced and size else whole
        if self.on_host:
            return []
        earlier = [term._replace(label="of earlier micro steps") for term in self.partition]
        return [*(self.partition if done else ()), *(earlier if self.accumulating else ())]

    def buffers_at(self, candidate: PeakCandidate) -> list[Term]:
        """The reduce buckets: from the first gradient on, or all of the backward pass."""
        if candidate.gradient_elements:
            return list(self.buckets)
        return list(self.buckets[:1]) if self.at_once and candidate.phase == "backward" else []


class Partition(NamedTuple):
    """A rank's flat partition of the trained parameters: `share` elements, kept in the dtype of the masters.

    each     bytes of a gradient element (the widest, where dtypes differ);  wide  of a master's
    """

    trained: list[Parameter]
    over: Ranks
    share: int
    each: float
    wide: int
    items: list[optimizer.Item]
    spec: optimizer.Spec
    states: optimizer.States

    @property
    def masters(self) -> int:
        """Bytes of the masters."""
        return self.wide * self.share

    @property
    def kept(self) -> int:
        """Bytes of masters and states."""
        return self.states.allocated + self.masters

    @property
    def temporary(self) -> int:
        """Bytes that a step of the optimizer makes and frees again."""
        return step_temporaries(self.items, self.spec).size

    def state_terms(self, job: Job) -> list[Term]:
        """Masters and states, where they stay on the GPU."""
        return optimizer.state_terms(self.items, self.spec, self.states, job, self.masters, self.over.dense)


def partition(job: Job, found: Sequence[Parameter], over: Ranks) -> Partition:
    """The partition of a rank. N ranks, T trainable elements, b bytes of a gradient element.

    optimizer   fp32 master and states of T/N: 12 B each with Adam (also when the weights are fp32)
    step        T/N x (b + b + 4): partition, its flat copy and the fp32 gradient; stage 3 does it a sub-group at a
                time; the optimizer's own temporaries come after the copies but one are gone

    DeepSpeed's own `Adam` and `AdamW` are its FusedAdam; other names are the client's optimizer. Masters are float32,
    or of the weights' own dtype with `bf16_master_weights_and_grads`.
    """
    trained = [item for item in found if item.trainable]
    share, master = over.elements(trained), "float32"
    if trained and not job.precision.master_weights:
        master = max((item.dtype for item in trained), key=dtype_bytes)
    items = [optimizer.Item((share,), 1, master, flat=True)] if share else []
    spec = optimizer.specification("fused_adam") if _own_adam(job) else optimizer.of_job(job)
    each = max((dtype_bytes(gradient_dtype(item, job)) for item in trained), default=0.0)
    states = optimizer.states(items, spec, job)
    return Partition(trained, over, share, each, int(dtype_bytes(master)), items, spec, states)


def _own_adam(job: Job) -> bool:
    return job.optimizer.name.lower() in ("adam", "adamw")


def zero12_state(job: Job, found: tuple[Parameter, ...]) -> Zero12State:
    """The state under ZeRO's stages 0 to 2, from the file's own sizes."""
    zero = job.parallelism.zero
    assert zero is not None
    mine = partition(job, found, ranks(job) if zero.stage else Ranks(1, 1))
    trained, each, states, spec = mine.trained, mine.each, mine.states, mine.spec
    offload = zero.stage > 0 and zero.offload_optimizer.device != "none"
    state = Zero12State(
        resident=weights(found),
        all_gradients=flat_gradients(trained, job),
        loading=loading_terms(found, job),
        paged=0 if offload else states.paged,
        host=0 if offload else per_node(job) * (states.paged + states.host),
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        accumulating=job.gradient_accumulation_steps > 1,
        in_backward=spec.in_backward,
        partition=flat_gradients(trained, job, mine.over) if zero.stage else [],
        full=zero.stage < 2,
        on_host=offload,
    )
    if zero.stage:
        before = not Stack(job).does(BUCKETS_WITH_GRADIENT)
        state.at_once = zero.contiguous_gradients and before
        buckets = _bucket(zero, each, trained), in_hand(trained if zero.stage == 2 else (), each)
        state.buckets = tuple(term for term in buckets if term.size)
    if offload:
        largest = max((item.size for item in trained), default=0)
        state.step_buffers.append(
            buffer_line(each, largest, "the largest gradient, on its way to main memory", STAGE12)
        )
        state.resident.append(optimizer.offloaded(mine.kept, zero.offload_optimizer, job, 1.0))
        state.host = host.optimizer(job, mine.share, states, zero.offload_optimizer.device)
        state.step_gradients = []
        return state
    copies = _copied_in_float32(job, mine) or copied(mine)
    state.step_gradients = step_lines(copies, (mine.share,) * len(copies), STAGE12)
    if spec.in_backward:
        size = max(0, state.largest_gradient + total(state.step_gradients) - state.gradients)
        state.step_gradients = [line("gradients", size, "the largest gradient: each is used up at once", AUTOGRAD)]
    freed = int(mine.share * (sum(size for size, _ in copies) - mine.wide))
    state.step_temporaries = step_terms(mine.items, spec, job.optimizer.name, max(0, mine.temporary - freed))
    state.resident += mine.state_terms(job)
    return state


Copies = tuple[tuple[float, str], ...]
"""Bytes an element of gradients in the step, and what each copy is."""


def copied(mine: Partition) -> Copies:
    """The partition, its flat copy and the copy for the masters."""
    return (
        (mine.each, "gradients of the rank's partition"),
        (mine.each, "the same in one flat tensor"),
        (mine.wide, "the same as wide as the masters"),
    )


def _copied_in_float32(job: Job, mine: Partition) -> Copies:
    """The same at stage 0 with float16, which has a wrapper of its own; nothing elsewhere.

    Beside the gradients float32 copies, one a tensor, and for DeepSpeed's FusedAdam a flat one made of them
    (runtime/fp16/fused_optimizer.py `FP16_Optimizer.step`, unfused_optimizer.py).
    """
    zero = job.parallelism.zero
    if zero is None or zero.stage or job.weights.dtype != "float16":
        return ()
    copies = (mine.each, "gradients"), (mine.wide, "the same in float32")
    return (*copies, (mine.wide, "the same in one flat tensor")) if _own_adam(job) else copies


def step_lines(copies: Copies, counts: tuple[int, ...], source: str) -> list[Term]:
    """The gradients of the optimizer step."""
    return [
        Term("gradients", f"{width:g} B x {count:,} elements", int(width * count), source, label)
        for (width, label), count in zip(copies, counts, strict=True)
    ]


def in_hand(trained: Sequence[Parameter], each: float) -> Term:
    """The largest gradient of a layer."""
    largest = max((item.size for item in trained if item.layers is not None), default=0)
    return buffer_line(each, largest, "the largest gradient of a layer, before it is copied into a bucket", STAGE12)


def _bucket(zero: Zero, each: float, trained: Sequence[Parameter]) -> Term:
    """`setup_buckets`: reduce_bucket_size elements whatever the model's size, two with overlap_comm."""
    source = f"{STAGE12} setup_buckets"
    if not trained or not zero.contiguous_gradients:
        most = min(zero.reduce_bucket_size, elements(trained))
        return buffer_line(each, most, "gradients of at most reduce_bucket_size elements, in one tensor", source)
    if zero.overlap_comm:
        return buffer_line(each, zero.reduce_bucket_size, "reduce_bucket_size, twice with overlap_comm", source, 2)
    return buffer_line(each, zero.reduce_bucket_size, "reduce_bucket_size", source)


def buffer_line(width: float, count: int, label: str, source: str, times: int = 1) -> Term:
    """A buffer of so many bytes an element."""
    formula = f"{width:g} B x {count:,} elements"
    return Term("buffers", formula if times == 1 else f"{times} x {formula}", times * int(width * count), source, label)
