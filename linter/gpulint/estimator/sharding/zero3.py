"""DeepSpeed ZeRO stage 3: everything divided, gathered a module at a time.

Source of every rule here: deepspeed 0.19.8, runtime/zero/stage3.py, partitioned_param_coordinator.py,
partition_parameters.py, runtime/engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...upstream.deepspeed import TESTS_EVERY_DTYPE
from ...upstream.stack import Stack
from ..allocator.allocator import segments
from ..states import optimizer
from ..states.gradients import flat_gradients, largest_gradient
from ..states.loading import LOADING, loading
from ..states.optimizer_step import step_terms
from ..states.parameters import allocated, elements
from ..states.ranks import per_node, ranks
from ..states.storage import dtype_bytes
from ..states.weights import weights
from ..terms import Term, line
from . import host
from .gathering import Window, window
from .sharded_state import ShardedState
from .zero import Copies, Partition, buffer_line, copied, in_hand, partition, step_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ...models.model import Model
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter
    from ..states.ranks import Ranks

_STAGE3 = "deepspeed 0.19.8 runtime/zero/stage3.py"
_COALESCED = "deepspeed runtime/comm/coalesced_collectives.py"
_PARTITIONED = "deepspeed 0.19.8 runtime/zero/partition_parameters.py"


@dataclass(slots=True)
class Zero3State(ShardedState):
    """A bucket and a gradient partition that always exist, and gathered parameters.

    reducing   the contiguous copy that a reduce-scatter makes of its bucket, and the largest gradient of a layer
               before it is copied into the bucket: there once there are gradients
    """

    gathered: Window | None = None
    reducing: tuple[Term, ...] = ()

    def gradients_at(self, done: int) -> list[Term]:  # noqa: ARG002
        """The flat partition of the gradients exists from initialisation on."""
        return self.all_gradients

    def buffers_at(self, candidate: PeakCandidate) -> list[Term]:
        """Gathered parameters, and what reducing takes."""
        found = self.gathered.terms_at(candidate) if self.gathered else []
        return [*found, *(self.reducing if candidate.gradient_elements else ())]


def zero3_state(job: Job, model: Model, found: tuple[Parameter, ...]) -> Zero3State:
    """The state under stage 3, from the file's own sizes."""
    zero = job.parallelism.zero
    assert zero is not None
    over = ranks(job)
    mine = partition(job, found, over)
    loose, fixed = _partitioned(found, job)
    trained, share, each, states = mine.trained, mine.share, mine.each, mine.states
    optimizer_away = zero.offload_optimizer.device != "none"
    ratio = zero.offload_optimizer.ratio if optimizer_away else 0.0
    parameters_away = zero.offload_parameters.device != "none"
    state = Zero3State(
        resident=[*weights([] if parameters_away else loose, over), *weights(fixed)],
        all_gradients=[] if optimizer_away else flat_gradients(trained, job, over),
        paged=0 if optimizer_away else states.paged,
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        persistent_grad_buffer=not optimizer_away,
        accumulating=job.gradient_accumulation_steps > 1,
    )
    state.needs_to_load(_load(found, loose, over, job), LOADING, _PARTITIONED)
    widest = max(loose, key=lambda item: item.elements, default=None)
    width = dtype_bytes(widest.dtype) if widest is not None else 2.0
    state.gathered = window(job, model, zero, loose, width)
    state.largest_allgather = int(state.gathered.largest * width) if over.dense > 1 else 0
    scattered = min(zero.reduce_bucket_size, elements(trained))
    copy = buffer_line(each, scattered, "contiguous copy of a full bucket for reduce-scatter", _COALESCED)
    state.reducing = tuple(term for term in (copy, in_hand(trained, each)) if term.size)
    state.step_buffers += _buffers(job, zero, loose, each if trained else 0.0, width)
    if optimizer_away:
        state.resident.append(optimizer.offloaded(mine.kept, zero.offload_optimizer, job, ratio))
        state.step_gradients = []
    else:
        state.resident += mine.state_terms(job)
        _step(state, job, zero, mine)
    state.host = host.partitions(job, share, states, zero, over.size(loose)) + per_node(job) * state.paged
    return state


def _step(state: Zero3State, job: Job, zero: Zero, mine: Partition) -> None:
    """What the optimizer step makes, a sub-group at a time: the copies, or the test of all gradients at once."""
    share, sub_group = mine.share, min(mine.share, zero.sub_group_size)
    taken, tested = int(sub_group * (mine.each + mine.wide)), _tested(job, share, mine.each)
    temporary = max(0, mine.temporary * sub_group // max(1, share) - int(sub_group * mine.each))
    if tested > taken + temporary:  # the test is the peak, and what the step takes after it lies beside its blocks
        state.step_gradients = step_lines(_test(mine.each), (share, share, share), _STAGE3)
        state.side_stream_bytes = segments(taken + temporary)
        return
    state.step_gradients = step_lines(copied(mine), (share, sub_group, sub_group), _STAGE3)
    state.step_temporaries = step_terms(mine.items, mine.spec, job.optimizer.name, temporary)
    state.side_stream_bytes = segments(tested)


def _test(each: float) -> Copies:
    """Gradients while they are tested for infinities: their magnitudes, and one that is true."""
    return (
        (each, "gradients of the rank's partition"),
        (each, "their magnitudes, tested for infinity"),
        (1, "which of them are"),
    )


def _tested(job: Job, share: int, each: float) -> int:
    """Bytes of that test of the whole partition at once, on the stream of the reductions (`has_overflow`).

    It is made in float16, and before 0.12.3 in every dtype (`_overflow_check_and_loss_scale_update`).
    """
    tests = job.weights.dtype == "float16" or Stack(job).does(TESTS_EVERY_DTYPE)
    return int(share * (each + 1)) if tests else 0


def _partitioned(found: Sequence[Parameter], job: Job) -> tuple[list[Parameter], list[Parameter]]:
    """What stage 3 divides, and what stays whole: buffers, and packed weights stored as bytes."""
    quantization = job.weights.quantization
    floating = quantization is not None and (quantization.storage_dtype or "uint8") not in ("uint8", "int8")
    loose: list[Parameter] = []
    fixed: list[Parameter] = []
    for item in found:
        whole = item.part == "buffer" or (item.packed and not floating)
        (fixed if whole else loose).append(item)
    return loose, fixed


def _load(found: Sequence[Parameter], loose: Sequence[Parameter], over: Ranks, job: Job) -> int:
    """Bytes beside the partition while the model is made and divided.

    `zero.Init` divides each tensor as it is made: one whole tensor at a time. Without it (`zero.init`), and for a
    quantised model, for which from_pretrained skips it, the engine moves all of the model to the GPU and divides it
    there tensor by tensor (engine.py `_configure_distributed_model`, partition_parameters.py `Init`, 0.6 to 0.19): the
    whole, and the first shard, which is that of the largest tensor where embeddings come first.
    """
    zero = job.parallelism.zero
    assert zero is not None
    packed = any(item.packed for item in found)
    if zero.init and not packed:
        return max((sum(item.pieces) for item in loose), default=0)
    away = zero.offload_parameters.device != "none"
    first = max((sum(item.pieces) // over.of(item) for item in loose), default=0)
    read = allocated(item for item in loose if item.part == "base") + (loading(found, job) if packed else 0)
    handed = allocated(loose) + (0 if away else first)
    return max(read, handed) - (0 if away else over.size(loose))


def _buffers(job: Job, zero: Zero, loose: Sequence[Parameter], each: float, width: float) -> list[Term]:
    """What stage 3 always has beside its partitions; `each` bytes of a gradient's element, 0 without gradients."""
    persistent = sum(
        item.elements for item in loose if not item.packed and item.size <= zero.param_persistence_threshold
    )
    found = []
    if zero.contiguous_gradients and each:
        source = f"{_STAGE3} _setup_for_real_optimizer"
        found.append(buffer_line(each, zero.reduce_bucket_size, "reduce_bucket_size, always allocated", source))
    if persistent:
        label = f"tensors of at most {zero.param_persistence_threshold:,} elements, which stay gathered"
        found.append(buffer_line(width, persistent, label, "param_persistence_threshold"))
    if zero.hpz_partition_size > 1:
        label = f"a second partition over {zero.hpz_partition_size} GPUs of a node"
        size = ranks(job, zero.hpz_partition_size).size(loose)
        found.append(line("buffers", size, label, "zero_hpz_partition_size"))
    return found
