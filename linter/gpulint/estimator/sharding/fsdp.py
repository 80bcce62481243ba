"""PyTorch FSDP 1 and 2: how a job's state is sharded, into which units, over which ranks.

Source: torch 2.13, distributed/fsdp (version 1), distributed/fsdp/_fully_shard (version 2).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...models.arch_spec import reuses_layers
from ...upstream.accelerate import DEFERS_FSDP2
from ...upstream.stack import Stack
from ...upstream.transformers import LAYERS_RETURN_CACHE
from ..frameworks.release import reentrant
from ..inputs.objectives import lengthened
from ..states import optimizer, storage
from ..states.gradients import gradient_dtype, gradient_shards
from ..states.loading import LOADING, loading
from ..states.optimizer_step import step_terms
from ..states.parameter import Ranks, per_node, ranks
from ..states.parameters import allocated, base_dtype, gathered_dtype
from ..states.storage import dtype_bytes
from ..states.weights import weights
from ..terms import Term, line, total
from . import host
from .fsdp_state import FsdpState
from .fsdp_units import Policy, prefetches, stays_replicated, units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Fsdp, Job
    from ...models.model import Model
    from ..states.parameter import Parameter


KEEPS_WHOLE = frozenset({"shard_grad_op", "_hybrid_shard_zero2", "hybrid_shard_zero2"})
"""Strategies that do not free the gathered parameters between forward and backward."""

_LOADS = "torch 2.13 fsdp/_init_utils.py, _flat_param.py; accelerate 1.15 fsdp2_prepare_model"


def fsdp_state(job: Job, model: Model, found: tuple[Parameter, ...]) -> FsdpState:
    """The state under FSDP. N ranks of a shard group, every state divided by N.

    weights     the shards in their own dtype (fp32 where the mixed precision of accelerate upcasts trainable ones);
                packed weights with byte storage cannot be sharded and stay whole
    gradients   of all that autograd makes one for; version 1 keeps the shard of a whole flat parameter
    optimizer   states of the trained shards in the shards' dtype
    Hybrid strategies shard over the GPUs of one node (or `shard_size`). Offload leaves the scales of bitsandbytes'
    weights on every GPU: they are no parameters, and went there with theirs (`Params4bit.to`).
    """
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    over = ranks(job, group(job, fsdp))
    shardable = [item for item in found if item.part != "buffer" and not stays_replicated(item, job)]
    graded = [item for item in found if item.graded]
    spec = optimizer.of_job(job)
    items = _items([item for item in found if item.trainable], over, fsdp)
    states = optimizer.states(items, spec, job)
    gradients = gradient_shards(graded, job, over)
    largest = max((int(item.size * dtype_bytes(gradient_dtype(item, job))) for item in graded), default=0)
    state = FsdpState(
        resident=_resident(job, fsdp, found, over),
        all_gradients=[*([] if fsdp.offload else gradients), *_in_flat_params(found)],
        paged=0 if fsdp.offload else states.paged,
        host=per_node(job) * (states.paged + states.host),
        trainable=sum(item.elements for item in graded),
        largest_gradient=largest // over.dense,
        accumulating=job.gradient_accumulation_steps > 1 and not job.longest_batch_first,
        in_backward=spec.in_backward,
        fsdp=fsdp,
        gathered_share=_gathered_share(fsdp),
        reused=model.shape.layers if reuses_layers(model) else 0,
        steps=1 if job.longest_batch_first else job.gradient_accumulation_steps,
    )
    state.needs_to_load(_load(found, fsdp, over, job, model), LOADING, _LOADS)
    apart = fsdp.experts_unwrapped and job.parallelism.expert > 1 and over.experts == 1
    policy = Policy(gathered_dtype(job), fsdp.mixed_precision.reduce_dtype, apart)
    state.units = units(fsdp, model, shardable, policy)
    frozen = not any(item.graded and item.part == "base" and item.layers is not None for item in shardable)
    state.adapters = fsdp.version == 1 and frozen
    state.prefetches = not state.adapters and prefetches(fsdp)
    state.kept = kept(job, fsdp, model) if state.adapters else 0
    state.cached, state.named = cached(job, fsdp, model), job.loss.kept is True
    if job.gradient_accumulation_steps > 1 and defers(job):
        everything = state.units.everything
        state.deferred = everything.reduced if fsdp.version == 2 else everything.gradients
    if fsdp.offload:
        sharded = over.size(shardable) - _scales(shardable, over)
        state.host = host.sharded(job, sharded, total(gradients), states.raw)
        return state
    state.resident += optimizer.state_terms(items, spec, states, job, ranks=over.dense)
    state.step_temporaries = step_terms(items, spec, job.optimizer.name)
    return state


def _resident(job: Job, fsdp: Fsdp, found: Sequence[Parameter], over: Ranks) -> list[Term]:
    """Weights as they are sharded; what is replicated, and with offload what stays on every GPU."""
    shardable = [item for item in found if item.part != "buffer" and not stays_replicated(item, job)]
    fixed = [item for item in found if item.part == "buffer" or stays_replicated(item, job)]
    if not fsdp.offload:
        return [*weights(fixed), *weights(shardable, over)]
    note = "shards of weights, gradients and optimizer states in main memory (offload_params)"
    kept, what = (
        _scales(shardable, over),
        "scales and tables of packed weights, which are no parameters and stay on every GPU",
    )
    scales = [line("weights", kept, what, "bitsandbytes Params4bit.to, QuantState")] if kept else []
    return [*weights(fixed), Term("optimizer", note, 0, "torch FSDP CPUOffload"), *scales]


def _scales(shardable: Sequence[Parameter], over: Ranks) -> int:
    """Bytes of the scales and tables of packed weights whose codes are sharded alone."""
    if over.scales:
        return 0
    return sum(item.copies * storage.total(item.pieces[1:]) for item in shardable if item.packed)


def _in_flat_params(found: Sequence[Parameter]) -> list[Term]:
    """A note of frozen elements that get gradients with the trained ones beside them."""
    swept = sum(item.elements for item in found if item.swept)
    note = f"{swept:,} frozen elements share flat parameters with trained ones, and get gradients too"
    return [Term("gradients", note, 0, "torch 2.13 distributed/fsdp/wrap.py _validate_frozen_params")] if swept else []


def defers(job: Job) -> bool:
    """Whether micro steps before the last one leave their gradients unreduced."""
    fsdp = job.parallelism.fsdp
    if fsdp is None or fsdp.sync_each_batch:
        return False
    return fsdp.version == 1 or Stack(job).does(DEFERS_FSDP2)


def _gathered_share(fsdp: Fsdp) -> float:
    if fsdp.sharding in KEEPS_WHOLE or fsdp.reshard_after_forward is False:
        return 1.0
    return 1.0 / fsdp.reshard_after_forward if fsdp.reshard_after_forward > 1 else 0.0


def group(job: Job, fsdp: Fsdp) -> int | None:
    """The ranks over which a hybrid strategy or `shard_size` shards; None for all of them."""
    if fsdp.shard_size:
        return fsdp.shard_size
    if fsdp.sharding.strip("_").startswith("hybrid"):
        nodes = max(1, job.hardware.nodes or -(-job.world_size // 8))
        return max(1, job.data_parallel // nodes)
    return None


def _items(trained: Sequence[Parameter], over: Ranks, fsdp: Fsdp) -> list[optimizer.Item]:
    """The tensors that the optimizer of one rank has.

    Version 2: each parameter's share, a matrix cut in its first dimension. Version 1: the share of each unit's flat
    parameter (one of all without a wrap policy), or with `use_orig_params` and for adapters, whose modules are units,
    that of each parameter: as views that share its bytes among them.
    """
    if fsdp.version == 1:
        return _flat(trained, over, fsdp)
    cut = []
    for whole, parameter in zip(optimizer.items(trained), trained, strict=True):
        first = -(-whole.shape[0] // over.of(parameter)) if whole.shape else 1
        cut.append(whole._replace(shape=(first, *whole.shape[1:])))
    return cut


def _flat(trained: Sequence[Parameter], over: Ranks, fsdp: Fsdp) -> list[optimizer.Item]:
    units: dict[tuple[int | None, str, int], int] = {}
    made = []
    for item in trained:
        if fsdp.use_orig_params or item.part != "base":
            made.append(optimizer.Item((-(-item.size // over.of(item)),), item.copies, item.dtype, flat=True))
            continue
        for layer in item.layers or (None,):
            unit = layer if fsdp.wrap != "none" else None, item.dtype, over.of(item)
            units[unit] = units.get(unit, 0) + item.size
    alike = Counter((-(-size // shared), dtype) for (_, dtype, shared), size in units.items())
    return made + [optimizer.Item((size,), copies, dtype, flat=True) for (size, dtype), copies in alike.items()]


def shards(job: Job, found: Sequence[Parameter]) -> list[optimizer.Item]:
    """The tensors that the optimizer of one rank has (`_items`)."""
    fsdp = job.parallelism.fsdp
    assert fsdp is not None
    return _items([item for item in found if item.trainable], ranks(job, group(job, fsdp)), fsdp)


def _load(found: Sequence[Parameter], fsdp: Fsdp, over: Ranks, job: Job, model: Model) -> int:
    """What sharding the weights takes on the GPU.

    Packed weights are on every rank whole before those that can be are sharded, and under accelerate's version 2 beside
    all shards: `fsdp2_prepare_model` holds a state dict of the whole model to its end (1.6 to 1.15). Version 1 moves a
    unit there and concatenates its tensors to a flat parameter, twice its size, before it keeps its shard (torch 2.13
    fsdp/_init_utils.py `_move_module_to_device`, _flat_param.py `flatten_tensors`). Version 2 moves a unit
    (`_move_states_to_device`), or with `cpu_ram_efficient_loading` one tensor after the other. The root comes last:
    until then its shard is not there.
    """
    packed = [item for item in found if item.packed]
    if packed and not fsdp.cpu_ram_efficient_loading:
        sharded = [item for item in packed if not stays_replicated(item, job)]
        beside = fsdp.version == 2 and not Stack(job).native
        return allocated(sharded) - (0 if beside else over.size(sharded)) + loading(found, job)
    if fsdp.version == 2 and fsdp.cpu_ram_efficient_loading:
        return max((int(item.size * item.element_bytes) for item in found if not item.packed), default=0)
    made = units(fsdp, model, [item for item in found if not item.packed and item.part != "buffer"], Policy(None, None))
    copies = 2 if fsdp.version == 1 else 1
    largest = max(unit.gathered for unit in (made.root, made.first, made.last, made.block))
    return copies * largest - (0 if fsdp.offload else made.root.gathered // over.dense)


def kept(job: Job, fsdp: Fsdp, model: Model) -> int:
    """2 x e T h that every finished layer keeps when version 1 wraps frozen layers under reentrant checkpointing.

    For a flat parameter without gradients FSDP hangs its reshard on the layer's inputs with `register_multi_grad_hook`
    (`_register_post_backward_reshard_only_hook`), whose handle lives until the end of the backward pass and holds the
    detached input that the recomputation made, together with its `.grad`: T x h elements each. The `.grad` is also
    what the layer below is handed. Where the unit holds the checkpoint, its inputs are those of the forward pass, which
    are no leaves and hold no gradient.
    """
    checkpointed = job.activation_checkpointing == "full" and reentrant(job) and not fsdp.checkpoints_inside
    if fsdp.wrap != "transformer" or not checkpointed:
        return 0
    dtype = gathered_dtype(job) or base_dtype(job, model)
    return int(2 * dtype_bytes(dtype) * _rows(job) * model.shape.hidden)


def cached(job: Job, fsdp: Fsdp, model: Model) -> int:
    """2 x e T k: the keys and values that a layer returns in training, as `use_cache` stays on.

    Transformers' own checkpointing turns it off; torch's checkpoint wrapper, put into FSDP's units, does not
    (transformers 4.31 models/llama/modeling_llama.py `LlamaModel.forward`).
    """
    stack = Stack(job)
    wrapped = fsdp.checkpoints_inside and job.activation_checkpointing == "full" and not stack.native
    if not wrapped or not stack.does(LAYERS_RETURN_CACHE):
        return 0
    if model.config.get("use_cache") is False:
        return 0
    shape, dtype = model.shape, gathered_dtype(job) or base_dtype(job, model)
    return int(2 * dtype_bytes(dtype) * _rows(job) * shape.kv_heads * shape.head_dim)


def _rows(job: Job) -> int:
    """T: the tokens of a micro batch on a rank, virtual ones among them."""
    return (job.micro_batch_size or 0) * (lengthened(job).sequence_length or 0) // max(1, job.parallelism.context)
