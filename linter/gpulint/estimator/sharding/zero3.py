"""DeepSpeed ZeRO stage 3: everything divided, gathered a module at a time.

Source of every rule here: deepspeed 0.19.8, runtime/zero/stage3.py, partitioned_param_coordinator.py,
partition_parameters.py, runtime/engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...upstream.deepspeed import TESTS_EVERY_DTYPE
from ...upstream.stack import Stack
from ..allocator.allocator import segments
from ..states import optimizer
from ..states.gradients import flat_gradients, largest_gradient
from ..states.loading import LOADING, loading
from ..states.optimizer_step import step_terms
from ..states.parameter import per_node, ranks
from ..states.parameters import allocated, elements
from ..states.storage import dtype_bytes
from ..states.weights import weights
from ..terms import Term, line, total
from . import host
from .sharded_state import ShardedState
from .zero import Copies, Partition, buffer_line, copied, in_hand, partition, step_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ...models.model import Model
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter, Ranks


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


class Window(NamedTuple):
    """Elements by layer, and what the coordinator keeps of them.

    layers      elements of each decoder layer;  head, embedding  of what comes after and before them
    largest     elements of the largest module's own parameters, which are fetched together (fused experts are one)
    prefetch    stage3_prefetch_bucket_size;  live  stage3_max_live_parameters;  reuse  stage3_max_reuse_distance
    passes      how often the parameters after a layer are used between its forward and its backward, for each of
                them: 2, with activation checkpointing 3 (the recomputation)
    width       bytes of a gathered element
    """

    layers: tuple[int, ...]
    head: int
    embedding: int
    largest: int
    prefetch: int
    live: int
    reuse: int
    passes: int
    width: float

    def size(self, candidate: PeakCandidate) -> int:
        """Bytes gathered at an instant of forward, loss or backward."""
        return total(self.terms_at(candidate))

    def terms_at(self, candidate: PeakCandidate) -> list[Term]:
        """What is gathered at an candidate.

        A prefetched bucket arrives flat and is copied out to its parameters: twice (`AllGatherCoalescedHandle`).
        """
        held, source = self.held(candidate), "deepspeed partitioned_param_coordinator.py"
        ahead = self._ahead(held)
        size, whole = int(self.width * held), int(self.width * (held + 2 * ahead))
        label = f"gathered, within max_reuse_distance {self.reuse:,}"
        found = [Term("buffers", f"{self.width:g} B x {held:,} elements", size, source, label)]
        if ahead:
            formula, label = (
                f"2 x {self.width:g} B x {ahead:,} elements",
                "prefetched, in one tensor and copied out of it",
            )
            found.append(Term("buffers", formula, whole - size, source, label))
        return found

    def held(self, candidate: PeakCandidate) -> int:
        """Elements of the parameters that are gathered at an instant, without what is prefetched."""
        backward = candidate.phase == "backward"
        turn = candidate.phase == "loss" or candidate.layer is None
        if candidate.layer is None and backward and candidate.gradient_elements and self._finished(candidate):
            return (self.embedding if self.embedding < self.reuse else 0) + self.largest
        first = self.first_kept()
        if turn:
            return self.head + sum(self.layers[first:])
        layer = min(candidate.layer or 0, len(self.layers) - 1) if self.layers else 0
        if not self.layers:
            return self.largest
        current = self.layers[layer] if backward and self.passes == 3 else min(self.largest, self.layers[layer])
        return sum(self.layers[first:layer]) + current

    def first_kept(self) -> int:
        """The first layer that stays gathered from its forward to its backward pass.

        A module's parameters are not released when they come up again before `reuse` more elements are traversed
        (`__params_to_release`): passes x (elements after the layer) < max_reuse_distance.
        """
        after, first = self.head, len(self.layers)
        for index in range(len(self.layers) - 1, -1, -1):
            if self.passes * after >= self.reuse:
                break
            first = index
            after += self.layers[index]
        return first

    def _finished(self, candidate: PeakCandidate) -> bool:
        return candidate.gradient_elements > self.head + sum(self.layers)

    def _ahead(self, held: int) -> int:
        """Elements prefetched: the bucket, cut by max_live_parameters, and never more than there is."""
        total = self.head + self.embedding + sum(self.layers)
        return max(0, min(self.prefetch, self.live - held, total - held))


def window(job: Job, model: Model, zero: Zero, loose: Sequence[Parameter], width: float) -> Window:
    """The Window of a stage 3 job over its partitioned parameters; persistent ones are counted elsewhere."""
    gatherable = [item for item in loose if _stored(item, width) > zero.param_persistence_threshold]
    counts = [0] * max(1, model.shape.layers)
    head = embedding = 0
    for item in gatherable:
        if item.layers is None:
            if item.role in ("embedding", "position"):
                embedding += _stored(item, width)
            else:
                head += _stored(item, width)
            continue
        for layer in item.layers:
            if layer < len(counts):
                counts[layer] += _stored(item, width)
    if model.shape.tied:
        head += embedding
        embedding = 0
    return Window(
        tuple(counts),
        head,
        embedding,
        _largest_module(gatherable, width),
        zero.prefetch_bucket_size,
        zero.max_live_parameters,
        zero.max_reuse_distance,
        3 if job.activation_checkpointing in ("full", "offload") else 2,
        width,
    )


def _largest_module(items: Sequence[Parameter], width: float) -> int:
    """`fetch_sub_module` gathers what `module.parameters(recurse=False)` yields (partitioned_param_coordinator.py)."""
    modules: dict[str, int] = {}
    for item in items:
        module = item.name.rpartition(".")[0]
        modules[module] = modules.get(module, 0) + _stored(item, width)
    return max(modules.values(), default=0)


def _stored(item: Parameter, width: float) -> int:
    """Elements that DeepSpeed sees in one copy: a packed weight is its codes in the storage dtype."""
    return int(item.pieces[0] // width) if item.packed else item.size
