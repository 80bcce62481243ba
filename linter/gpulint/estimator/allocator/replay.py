"""Two training steps through a model of torch's allocator: what a rank reserves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .. import budget
from ..estimate import ALLOCATED
from ..memoize import Recall
from ..sharding.fsdp import shards
from ..sharding.fsdp_state import FsdpState
from ..sharding.sharded_state import ShardedState
from ..sharding.streams import Gathering, first_step, sharding
from ..sharding.wrapping import stay, wrap, wrapping
from ..states import optimizer
from ..states.gradients import accumulating, gradient_dtype
from ..states.optimizer_step import step_blocks
from ..states.parameter import in_order
from ..states.parameters import parameters
from ..states.storage import dtype_bytes
from .allocator import SMALL_REQUEST, Allocator, OutOfMemory, segments

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from ...job.job import Job
    from ...models.model import Model
    from ..estimate import Phase
    from ..sharding.streams import Sharding
    from ..sharding.wrapping import Wrapped
    from ..states.optimizer import Item, Spec
    from ..states.parameter import Parameter
    from .allocator import Policy
    from .trace import Trace

STEPS = 2
"""The optimizer's states exist from the second step on; what the first one freed has to hold them. Where they are small
the second step asks for what the first one has freed."""


class Plan(NamedTuple):
    """What lies around the activations of a rank.

    resident     sizes that are never freed, with how many there are of each
    lump         bytes beside them that other streams or whole buffers keep for good
    load         sizes that loading needs besides, all there at once and freed before the first step
    states       sizes that the optimizer asks for in its first step
    temporary    sizes that each optimizer step asks for and frees
    gradients    sizes of the gradients that stay from micro step to micro step; empty where each step makes its own
    keeps        whether a parameter's gradient stays as it was made until the step
    sharding     how FSDP gathers and reduces around the computation
    wrapped      the units that FSDP 1 makes of the weights before the first step
    aside        bytes that another stream has asked for and freed by the end of a step
    """

    resident: list[tuple[int, int]]
    lump: int
    load: list[tuple[int, int]]
    states: list[tuple[int, int]]
    temporary: list[tuple[int, int]]
    gradients: list[tuple[int, int]]
    keeps: bool
    sharding: Sharding | None = None
    wrapped: Sequence[Wrapped] = ()
    aside: int = 0


class Run(NamedTuple):
    """Bytes reserved: `most` over two steps, `first` after the first one."""

    most: int
    first: int


def reserved(found: Trace, plan: Plan, policy: Policy, allocated: int = 0, limit: int | None = None) -> Run:
    """Bytes reserved over two steps. Raises OutOfMemory where they pass `limit`.

    What an estimate of `allocated` bytes knows of and the replay does not (other micro batches in flight in a
    pipeline, logits that an evaluation gathers) is added.

    Order: what is resident; loading; then twice forward and backward as `trace` has them (of two micro steps where
    gradients add up), the optimizer's states (once), the step's temporaries, zero_grad; then a pass of an evaluation.
    Requests of the small pool are added up instead of being placed.
    """
    key = (repr(plan), policy, allocated, limit)
    run = _runs.ask(found, key, lambda: _reserved(found, plan, policy, allocated, limit))
    if run is None:
        raise OutOfMemory
    return run


_runs = Recall(8)


def _reserved(found: Trace, plan: Plan, policy: Policy, allocated: int, limit: int | None) -> Run | None:
    grown = any(size > SMALL_REQUEST for size, _ in [*plan.states, *plan.temporary, *plan.gradients])
    try:
        return _steps([found] * (STEPS if grown else 1), plan, policy, allocated, limit)
    except OutOfMemory:
        return None


def growing(found: Sequence[Trace], plan: Plan, policy: Policy, allocated: int) -> int:
    """Bytes reserved over a step of each of `found`, batches that get longer and longer; 0 where no pool has room.

    What a shorter batch has freed is too small for the longer one's largest tensors, which open segments anew.
    """
    try:
        return _steps(found, plan, policy, allocated, None).most
    except OutOfMemory:
        return 0


def _steps(passes: Sequence[Trace], plan: Plan, policy: Policy, allocated: int, limit: int | None) -> Run:
    memory = Allocator(limit, policy)
    memory.hold(plan.lump)
    small = _hold(memory, plan.resident)
    wrap(memory, plan.wrapped)
    for block in _take(memory, plan.load):
        memory.give(block)
    small += sum(size * count for size, count in plan.states if size <= SMALL_REQUEST)
    first = 0
    named: tuple[int, ...] = ()
    for step, found in enumerate(passes):
        if plan.gradients and found.opening is not None:
            gradients, named = _micro_step(memory, found.opening, plan._replace(keeps=True), named)
        else:
            gradients = [] if plan.gradients and step == 0 else _take(memory, plan.gradients)
        made, named = _micro_step(memory, found, plan, named)
        gradients += made
        if plan.gradients and step == 0 and found.opening is None:
            gradients += _take(memory, plan.gradients)
            made, named = _micro_step(memory, found, plan, named)
            gradients += made
        if step == 0:
            _take(memory, plan.states)
            memory.set_aside(plan.aside)
        for block in _take(memory, plan.temporary):
            memory.give(block)
        for block in gradients:
            memory.give(block)
        first = first or memory.reserved
    found = passes[-1]
    if found.evaluation is not None:
        _micro_step(memory, found.evaluation, plan._replace(keeps=False))
    rest = segments(small + found.small + max(0, allocated - memory.most - small - found.small))
    return Run(memory.peak + rest, first + rest)


def uncut(found: Trace, plan: Plan) -> int:
    """Most bytes at once of the step's tensors that are larger than every piece of the optimizer's states.

    In the first step the states are cut from what its pass has freed. Where they took the largest blocks, the next pass
    opens these anew: no more bytes than the states have.
    """
    piece = max((size for size, _ in plan.states), default=0)
    if piece <= SMALL_REQUEST:
        return 0
    alive = most = 0
    for event in found.events:
        size = found.sizes[event if event >= 0 else ~event]
        if size > piece:
            alive += size if event >= 0 else -size
            most = max(most, alive)
    return min(most, sum(size * count for size, count in plan.states))


def _micro_step(
    memory: Allocator, found: Trace, plan: Plan, named: tuple[int, ...] = ()
) -> tuple[list[int], tuple[int, ...]]:
    """One forward and backward pass; the gradients that are left, and what the training loop names until the next.

    `named` are the blocks of what it names of the pass before; none before the first.
    """
    blocks = {size: memory.blocks(size) for size in set(found.sizes)}
    sizes = [blocks[size] for size in found.sizes]
    alive = [0] * len(sizes)

    def run(begin: int, end: int | None, left: Container[int]) -> list[int]:
        events = found.events[begin:end]
        budget.spend(len(events))
        return memory.run(events, sizes, alive, left)

    if plan.sharding is None:
        gradients = found.gradients if plan.keeps else frozenset()
        if not found.after:
            return run(0, None, gradients), ()
        return _named(memory, found, (sizes, alive), gradients, named)
    units = Gathering(memory, plan.sharding)
    done = 0
    for begin, end, backward in found.passes:
        _handed(units, run(done, begin, found.gradients))
        units.before(backward=backward)
        _handed(units, run(begin, end, found.gradients))
        units.after()
        done = end
    _handed(units, run(done, None, found.gradients))
    units.close()
    return [], ()


def _named(
    memory: Allocator,
    found: Trace,
    state: tuple[list[int], list[int]],
    gradients: frozenset[int],
    named: tuple[int, ...],
) -> tuple[list[int], tuple[int, ...]]:
    """A pass that ends what the loop names of the one before where it does so, and leaves its own."""
    (sizes, alive), before = state, dict(zip(found.before, named, strict=False))
    for number, block in before.items():
        alive[number] = block
    earlier = set(found.before)
    events = [
        event
        for event in found.events
        if (event not in earlier if event >= 0 else ~event not in earlier or ~event in before)
    ]
    budget.spend(len(events))
    kept = memory.run(events, sizes, alive, gradients.union(found.after))
    left = tuple(alive[number] for number in found.after)
    return [block for block in kept if block not in left], left


def _handed(units: Gathering, blocks: list[int]) -> None:
    for block in blocks:
        units.handed(block)


def _hold(memory: Allocator, sizes: Iterable[tuple[int, int]]) -> int:
    """Keep blocks for good; the bytes of the small ones, which are left out."""
    small = 0
    for size, count in sizes:
        if size > SMALL_REQUEST:
            memory.hold(size, count)
        else:
            small += size * count
    return small


def _take(memory: Allocator, sizes: Iterable[tuple[int, int]]) -> list[int]:
    return [memory.take(size) for size, count in sizes if size > SMALL_REQUEST for _ in range(count)]


def plan_of(job: Job, model: Model, state: ShardedState, phases: Sequence[Phase]) -> Plan:
    """The Plan of a rank whose phases are known.

    A rank that holds everything (one GPU, DDP) asks for weights, states and gradients tensor by tensor. Under ZeRO
    and FSDP they are flat buffers, and gathered parameters and reduced gradients belong to other streams, which
    share no blocks with the computation: each is counted at its largest. DeepSpeed makes its optimizer's states before
    the first step, Megatron in it: they are cut from what the pass has freed. Packed weights that were on the GPU whole
    before they were sharded leave free segments of their sizes behind.
    """
    found = parameters(job, model)
    most = {name: max(phase.components[name] for phase in phases) for name in ALLOCATED}
    spec = optimizer.of_job(job)
    step_optimizer = max(phase.components["optimizer"] for phase in phases) - state.optimizer
    zero = job.parallelism.zero
    if type(state) is not ShardedState or zero is not None:
        lump = sum(most[name] for name in ("weights", "adapter", "gradients", "kv_cache", "buffers"))
        wrapped = wrapping(job, found, state.units) if isinstance(state, FsdpState) else []
        load = [] if wrapped else _unsharded(job, found, state)
        lump = max(0, lump - stay(wrapped))
        fsdp = job.parallelism.fsdp
        if fsdp is None:
            made = first_step(job, found) if zero is not None and zero.library == "megatron" else []
            held = max(0, state.optimizer - sum(size * count for size, count in made))
            return Plan([], lump + held, load, made, [(step_optimizer, 1)], [], False, aside=state.side_stream_bytes)
        pieces = [] if fsdp.offload else shards(job, found)
        states, temporary = _at_step(optimizer.state_blocks(pieces, spec, job), pieces, spec, state)
        how = sharding(job, state, found) if isinstance(state, FsdpState) else None
        if how is not None:
            lump += min(phase.components["buffers"] for phase in phases) - most["buffers"] + how.other
        return Plan([], lump, load, states, temporary, [], False, how, wrapped)
    trained = [item for item in found if item.trainable]
    tensors = optimizer.items(trained)
    masters = [(4 * item.size, item.copies) for item in trained if job.precision.master_weights]
    gradients = [(int(item.size * dtype_bytes(gradient_dtype(item, job))), item.copies) for item in trained]
    kept = accumulating(job) and not spec.in_backward
    lump = most["weights"] - state.weights + most["kv_cache"] + most["buffers"]
    states, temporary = _at_step([*masters, *_made_in_order(trained, spec, job)], tensors, spec, state)
    return Plan(
        [(piece, item.copies) for item in found for piece in item.pieces],
        lump,
        [(state.load, 1)],
        states,
        temporary,
        gradients if kept else [],
        not kept and not spec.in_backward,
    )


def _made_in_order(trained: Sequence[Parameter], spec: Spec, job: Job) -> list[tuple[int, int]]:
    """The states as the first step makes them: of each parameter in its order, those with weight decay first.

    Source: transformers trainer.py `create_optimizer` (two groups); torch/optim/adam.py `_init_group`.
    """
    found: list[tuple[int, int]] = []
    for decay in (True, False):
        for item in in_order([item for item in trained if item.decay is decay]):
            found += optimizer.state_blocks(optimizer.items([item]), spec, job)
    return found


def _at_step(
    states: list[tuple[int, int]], tensors: Sequence[Item], spec: Spec, state: ShardedState
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What the optimizer asks for in its first step, and what in each of them: states too that do not stay."""
    temporary = step_blocks(tensors, spec)
    return ([], [*states, *temporary]) if state.step_resident_states else (states, temporary)


def _unsharded(job: Job, found: Sequence[Parameter], state: ShardedState) -> list[tuple[int, int]]:
    """What is on the GPU before FSDP shards it: all packed weights, or a layer's tensors and their flat copy.

    Packed weights in bytes cannot be sharded and stay as they were loaded. With `cpu_ram_efficient_loading` each packed
    weight goes to main memory once it is packed (transformers 4.39 to 4.48 modeling_utils.py
    `_load_state_dict_into_meta_model`), and comes back with its layer.
    """
    quantization, fsdp = job.weights.quantization, job.parallelism.fsdp
    if fsdp is None:
        return [(state.load, 1)]
    stored = quantization.storage_dtype if quantization is not None else None
    shardable = stored not in (None, "uint8", "int8")
    if shardable and not fsdp.cpu_ram_efficient_loading:
        return [(piece, item.copies) for item in found if item.packed for piece in item.pieces]
    layer = [piece for item in found if item.layers and (shardable or not item.packed) for piece in item.pieces]
    return [*((piece, 1) for piece in layer), (sum(layer), 1)]
