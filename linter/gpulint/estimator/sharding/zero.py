"""DeepSpeed ZeRO: what each stage leaves on a rank, and its buckets and gathered parameters.

Source of every rule here: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py, stage3.py,
partitioned_param_coordinator.py, partition_parameters.py, runtime/engine.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...upstream.deepspeed import BUCKETS_WITH_GRADIENT, TESTS_EVERY_DTYPE
from ...upstream.stack import Stack
from ..allocator.allocator import segments
from ..estimate import Term
from ..explain import derivation
from ..states import optimizer
from ..states.gradients import gradient_dtype, largest_gradient
from ..states.loading import loading
from ..states.parameters import allocated, elements
from ..states.ranks import Ranks, per_node, ranks
from ..states.storage import dtype_bytes
from . import host
from .gathering import Window, window
from .layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ...models.model import Model
    from ..peak_candidate import Instant
    from ..states.parameter import Parameter

_STAGE12 = "deepspeed 0.19.8 runtime/zero/stage_1_and_2.py"
_STAGE3 = "deepspeed 0.19.8 runtime/zero/stage3.py"
_COALESCED = "deepspeed runtime/comm/coalesced_collectives.py"


@dataclass(slots=True)
class ReplicatedLayout(Layout):
    """Stages 0 to 2: whole 16-bit weights, one flat fp32 partition of the trainable ones.

    at_once     the buckets are there from the start of every backward pass, else from its first gradient on
    partition   bytes of this rank's partition of the gradients
    full        the gradients stay whole until the pass ends (stages 0 and 1)
    on_host     the reduced gradients go straight to main memory
    lines       of the buckets, and of the largest gradient of a layer before it is copied into one
    """

    lines: tuple[Term, Term] | None = None
    at_once: bool = False
    partition: int = 0
    full: bool = False
    on_host: bool = False

    def gradient_bytes(self, done: int) -> int:
        """Stage 1 keeps whole gradients; stage 2 its partition from the first one on, twice while accumulating."""
        if self.full:
            whole = super(ReplicatedLayout, self).gradient_bytes(done)
            return whole + (self.partition if self._is_reduced(done) else 0)
        if self.on_host:
            return 0
        fresh = self.partition if done else 0
        return fresh + (self.partition if self.accumulating else 0)

    def gradient_lines(self, lines: list[Term], instant: Instant) -> list[Term]:
        """With the rank's partition, which stage 1 makes beside the whole gradients when the pass ends."""
        if not self.full or not self.partition or not self._is_reduced(instant.gradient_elements):
            return lines
        label = "the rank's partition, reduced"
        return [*lines, Term("gradients", f"{self.partition:,} B", self.partition, _STAGE12, label)]

    def _is_reduced(self, done: int) -> bool:
        return done >= self.trainable > 0 and not self.on_host

    def buffer_bytes(self, instant: Instant) -> int:
        """The reduce buckets: from the first gradient on, or all of the backward pass."""
        return self.buffers + sum(line.size for line in self.told(instant))

    def told(self, instant: Instant) -> list[Term]:
        """The reduce buckets, and a gradient before it is copied into one."""
        if self.lines is None:
            return []
        if instant.gradient_elements:
            return list(self.lines)
        return [self.lines[0]] if self.at_once and instant.phase == "backward" else []


@dataclass(slots=True)
class PartitionedLayout(Layout):
    """Stage 3: everything divided; a bucket and a gradient partition that always exist; gathered parameters.

    lines    of the contiguous copy that a reduce-scatter makes of its bucket, and of the largest gradient of a layer
             before it is copied into the bucket
    """

    gathered: Window | None = None
    lines: tuple[Term, ...] = ()

    def gradient_bytes(self, done: int) -> int:  # noqa: ARG002
        """The flat partition of the gradients exists from initialisation on."""
        return self.gradients

    def buffer_bytes(self, instant: Instant) -> int:
        """Bucket, gathered parameters, and the reduce-scatter's copy once there are gradients."""
        size = self.buffers + (self.gathered.size(instant) if self.gathered else 0)
        return size + (sum(line.size for line in self.lines) if instant.gradient_elements else 0)

    def told(self, instant: Instant) -> list[Term]:
        """Lines of the same."""
        lines = self.gathered.told(instant) if self.gathered else []
        return [*lines, *(self.lines if instant.gradient_elements else ())]


def zero_layout(job: Job, model: Model, found: tuple[Parameter, ...]) -> Layout:
    """The Layout under ZeRO, from the file's own sizes. N ranks, T trainable elements, b bytes of a gradient element.

    optimizer   fp32 master and states of T/N: 12 B each with Adam (also when the weights are fp32)
    step        T/N x (b + b + 4): partition, its flat copy and the fp32 gradient; stage 3 does it a sub-group at a
                time (`_copied`); the optimizer's own temporaries come after the copies but one are gone
    """
    zero = job.parallelism.zero
    assert zero is not None
    if zero.stage == 3:
        return _stage3(job, model, zero, found)
    return _stage12(job, zero, found)


def _specification(job: Job) -> optimizer.Spec:
    """DeepSpeed's own `Adam` and `AdamW` are its FusedAdam; other names are the client's optimizer."""
    return optimizer.specification("fused_adam") if _own_adam(job) else optimizer.of_job(job)


def _own_adam(job: Job) -> bool:
    return job.optimizer.name.lower() in ("adam", "adamw")


def _master(job: Job, trained: Sequence[Parameter]) -> str:
    """The dtype of the flat partition: float32, or the weights' own with `bf16_master_weights_and_grads`."""
    if job.precision.master_weights or not trained:
        return "float32"
    return max((item.dtype for item in trained), key=dtype_bytes)


def _states(job: Job, share: int, dtype: str) -> tuple[optimizer.States, list[optimizer.Item], optimizer.Spec]:
    items = [optimizer.Item((share,), 1, dtype, flat=True)] if share else []
    spec = _specification(job)
    return optimizer.states(items, spec, job), items, spec


def _stage12(job: Job, zero: Zero, found: tuple[Parameter, ...]) -> Layout:
    trained = [item for item in found if item.trainable]
    over = ranks(job) if zero.stage else Ranks(1, 1)
    share = over.elements(trained)
    each = _gradient_size(trained, job)
    master = _master(job, trained)
    states, items, spec = _states(job, share, master)
    wide = int(dtype_bytes(master))
    offload = zero.stage > 0 and zero.offload_optimizer.device != "none"
    masters = wide * share
    built = ReplicatedLayout(
        weights=allocated(item for item in found if item.part in ("base", "buffer")),
        adapter=allocated(item for item in found if item.part in ("adapter", "copy")),
        optimizer=0 if offload else states.allocated + masters,
        paged=0 if offload else states.paged,
        host=0 if offload else per_node(job) * (states.paged + states.host),
        gradients=int(elements(trained) * each),
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        load=loading(found, job),
        accumulating=job.gradient_accumulation_steps > 1,
        in_backward=spec.in_backward,
        partition=int(share * each) if zero.stage else 0,
        full=zero.stage < 2,
        on_host=offload,
    )
    built.terms = derivation.weights(found)
    if zero.stage:
        before = not Stack(job).does(BUCKETS_WITH_GRADIENT)
        built.at_once = zero.contiguous_gradients and before
        built.lines = _bucket_line(zero, each, trained), _in_hand(trained if zero.stage == 2 else (), each)
    alive = built.largest_gradient if built.in_backward else built.gradients
    if offload:
        largest = max((item.size for item in trained), default=0)
        built.buffers = built.step_buffers = int(largest * each)
        built.host = host.optimizer(job, share, states, zero.offload_optimizer.device)
        built.step_gradients = -alive
        built.terms.append(_line(each, largest, "the largest gradient, on its way to main memory", _STAGE12))
        built.terms.append(derivation.offloaded(states.allocated + masters, zero.offload_optimizer, job, 1.0))
    else:
        step = _copied_in_float32(job, each, wide) or _copied(each, wide)
        width = sum(size for size, _ in step)
        built.step_gradients = max(-alive, int(share * width) - built.gradients)
        built.step_optimizer = max(0, states.temporary - int(share * (width - wide)))
        built.step_terms = _step_lines(step, (share,) * len(step), _STAGE12)
        left = states._replace(temporary=built.step_optimizer)
        built.terms += derivation.optimizer(items, spec, left, job, masters=masters, ranks=over.dense)
    built.terms += derivation.gradients(trained, job, over if zero.stage == 2 else None)
    return built


def _copied(each: float, wide: int) -> tuple[tuple[float, str], ...]:
    """Bytes an element of gradients in the step: the partition, its flat copy and the copy for the masters."""
    return (
        (each, "gradients of the rank's partition"),
        (each, "the same in one flat tensor"),
        (wide, "the same as wide as the masters"),
    )


def _copied_in_float32(job: Job, each: float, wide: int) -> tuple[tuple[float, str], ...]:
    """The same at stage 0 with float16, which has a wrapper of its own; nothing elsewhere.

    Beside the gradients float32 copies, one a tensor, and for DeepSpeed's FusedAdam a flat one made of them
    (runtime/fp16/fused_optimizer.py `FP16_Optimizer.step`, unfused_optimizer.py).
    """
    zero = job.parallelism.zero
    if zero is None or zero.stage or job.weights.dtype != "float16":
        return ()
    copies = (each, "gradients"), (wide, "the same in float32")
    return (*copies, (wide, "the same in one flat tensor")) if _own_adam(job) else copies


def _stage3(job: Job, model: Model, zero: Zero, found: tuple[Parameter, ...]) -> Layout:
    trained = [item for item in found if item.trainable]
    over = ranks(job)
    loose, fixed = _partitioned(found, job)
    share = over.elements(trained)
    each = _gradient_size(trained, job)
    master = _master(job, trained)
    states, items, spec = _states(job, share, master)
    wide = int(dtype_bytes(master))
    optimizer_away = zero.offload_optimizer.device != "none"
    ratio = zero.offload_optimizer.ratio if optimizer_away else 0.0
    parameters_away = zero.offload_parameters.device != "none"
    masters = wide * share
    kept = int((1 - ratio) * (states.allocated + masters))
    base = [item for item in loose if item.part == "base"]
    built = PartitionedLayout(
        weights=allocated(item for item in fixed) + (0 if parameters_away else over.size(base)),
        adapter=0 if parameters_away else over.size(item for item in loose if item.part != "base"),
        optimizer=kept,
        paged=0 if optimizer_away else states.paged,
        gradients=0 if optimizer_away else int(share * each),
        trainable=elements(trained),
        largest_gradient=largest_gradient(trained, job),
        load=_load3(found, loose, over, job),
        lasting=not optimizer_away,
        accumulating=job.gradient_accumulation_steps > 1,
    )
    persistent = sum(
        item.elements for item in loose if not item.packed and item.size <= zero.param_persistence_threshold
    )
    widest = max(loose, key=lambda item: item.elements, default=None)
    width = dtype_bytes(widest.dtype) if widest is not None else 2.0
    built.gathered = window(job, model, zero, loose, width)
    built.anew = int(built.gathered.largest * width) if over.dense > 1 else 0
    bucket = int(zero.reduce_bucket_size * each) if zero.contiguous_gradients and trained else 0
    scattered = min(zero.reduce_bucket_size, elements(trained))
    copied = _line(each, scattered, "contiguous copy of a full bucket for reduce-scatter", _COALESCED)
    built.lines = copied, _in_hand(trained, each)
    secondary = 0
    if zero.hpz_partition_size > 1:
        secondary = ranks(job, zero.hpz_partition_size).size(loose)
    built.buffers = built.step_buffers = bucket + int(persistent * width) + secondary
    sub_group = min(share, zero.sub_group_size)
    if not optimizer_away:
        taken, tested = int(sub_group * (each + wide)), _tested(job, share, each)
        temporary = max(0, states.temporary * sub_group // max(1, share) - int(sub_group * each))
        built.step_gradients, built.step_optimizer = taken, temporary
        built.step_terms = _step_lines(_copied(each, wide), (share, sub_group, sub_group), _STAGE3)
        built.aside = segments(tested)
        if tested > taken + temporary:  # the test is the peak, and what the step takes after it lies beside its blocks
            built.step_gradients, built.step_optimizer, built.aside = tested, 0, segments(taken + temporary)
            built.step_terms = _step_lines(_test(each), (share, share, share), _STAGE3)
    built.host = host.partitions(job, share, states, zero, over.size(loose)) + per_node(job) * built.paged
    built.terms = [
        *derivation.weights([item for item in loose if not parameters_away], over),
        *derivation.weights(fixed),
        *([] if optimizer_away else derivation.gradients(trained, job, over)),
        *_resident(zero, each, bucket, persistent, width, secondary),
    ]
    if optimizer_away:
        built.terms.append(derivation.offloaded(states.allocated + masters, zero.offload_optimizer, job, ratio))
    else:
        left = states._replace(temporary=built.step_optimizer)
        built.terms += derivation.optimizer(items, spec, left, job, masters, over.dense)
    return built


def _test(each: float) -> tuple[tuple[float, str], ...]:
    """Bytes an element of gradients while they are tested for infinities: their magnitudes, and one that is true."""
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


def _load3(found: Sequence[Parameter], loose: Sequence[Parameter], over: Ranks, job: Job) -> int:
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


def _in_hand(trained: Sequence[Parameter], each: float) -> Term:
    """The largest gradient of a layer."""
    largest = max((item.size for item in trained if item.layers is not None), default=0)
    return _line(each, largest, "the largest gradient of a layer, before it is copied into a bucket", _STAGE12)


def _gradient_size(trained: Sequence[Parameter], job: Job) -> float:
    """Bytes of a gradient element (the widest, where dtypes differ)."""
    return max((dtype_bytes(gradient_dtype(item, job)) for item in trained), default=0.0)


def _bucket_line(zero: Zero, each: float, trained: Sequence[Parameter]) -> Term:
    """`setup_buckets`: reduce_bucket_size elements whatever the model's size, two with overlap_comm."""
    source = f"{_STAGE12} setup_buckets"
    if not trained or not zero.contiguous_gradients:
        most = min(zero.reduce_bucket_size, elements(trained))
        return _line(each, most, "gradients of at most reduce_bucket_size elements, in one tensor", source)
    if zero.overlap_comm:
        return _line(each, zero.reduce_bucket_size, "reduce_bucket_size, twice with overlap_comm", source, 2)
    return _line(each, zero.reduce_bucket_size, "reduce_bucket_size", source)


def _line(width: float, count: int, label: str, source: str, times: int = 1) -> Term:
    """A line of so many bytes an element."""
    formula = f"{width:g} B x {count:,} elements"
    return Term("buffers", formula if times == 1 else f"{times} x {formula}", times * int(width * count), source, label)


def _step_lines(copies: tuple[tuple[float, str], ...], counts: tuple[int, ...], source: str) -> list[Term]:
    """The gradients of the optimizer step, see `zero_layout`."""
    return [
        Term("gradients", f"{width:g} B x {count:,} elements", int(width * count), source, label)
        for (width, label), count in zip(copies, counts, strict=True)
    ]


def _resident(zero: Zero, each: float, bucket: int, persistent: int, width: float, secondary: int) -> list[Term]:
    """What stage 3 always has beside its partitions."""
    found = []
    if bucket:
        source = f"{_STAGE3} _setup_for_real_optimizer"
        found.append(_line(each, zero.reduce_bucket_size, "reduce_bucket_size, always allocated", source))
    if persistent:
        label = f"tensors of at most {zero.param_persistence_threshold:,} elements, which stay gathered"
        found.append(_line(width, persistent, label, "param_persistence_threshold"))
    if secondary:
        label = f"a second partition over {zero.hpz_partition_size} GPUs of a node"
        found.append(Term("buffers", f"{secondary:,} B", secondary, "zero_hpz_partition_size", label))
    return found
