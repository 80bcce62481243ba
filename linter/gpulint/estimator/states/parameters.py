"""Every parameter as one rank holds it: divided by tensor, pipeline and expert parallelism, with dtype and packing."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...job.job import Job, Loss, Parallelism
from ...models.layers import OTHER_PARTS
from ...models.llama_adapter import trains
from ...models.lora_targets import NotAdaptable, expression
from ...units import DTYPE_BYTES
from ...upstream import unsloth
from ...upstream.peft import FOLLOWS_BASE_DTYPE
from ...upstream.stack import Stack
from ..frameworks.frameworks import framework, of_transformers
from ..memoize import recalled
from . import storage
from .adapter_parameters import adapter_of, adapter_parameters, saved_copies
from .buffers.stable_embedding import stabilised, stabilises
from .buffers.torchtune import caches
from .buffers.unsloth import tables
from .parameter import Parameter as Parameter
from .parameter import pieces_of
from .quantization import effective_quantization
from .skipping import kept, skipped_layers, stored
from .tensor_parallel import divided

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Fsdp, Quantization
    from ...models.model import Model, Tensor


def parameters(job: Job, model: Model) -> tuple[Parameter, ...]:
    """The parameters of the rank that holds most, base first, then adapter and trained copies, then buffers.

    The dtype of a base weight is `weights.dtype`, else the checkpoint's, else float32; `weights.trainable_dtype` is
    that of what is trained. k-bit preparation makes all that bitsandbytes left unpacked float32 (peft/utils/other.py
    `prepare_model_for_kbit_training`); DeepSpeed's 16-bit modes cast every floating parameter to the weights' dtype
    (runtime/engine.py `_cast_module_mixed_precision`); FSDP's mixed precision in accelerate makes trainable ones
    float32.
    """
    return _parameters(_storing(job), model)


def trainable_parameters(job: Job, model: Model) -> int:
    """Elements that the optimizer updates, of the whole model over all ranks."""
    whole = replace(job, parallelism=Parallelism())
    return elements(item for item in parameters(whole, model) if item.trainable or item.idle)


def _storing(job: Job) -> Job:
    """A job without what decides neither which parameters there are nor how a rank stores them."""
    stored = replace(job, **_UNREAD, loss=Loss(logits_unused=job.loss.logits_unused))
    if job.parallelism.device_map:
        stored.hardware = job.hardware
    if Stack(job).runs(unsloth.NAME):
        stored.sequence_length = job.sequence_length
    return stored


_UNREAD = {
    name: getattr(Job(), name)
    for name in (
        "model", "rl", "optimizer", "evaluation", "allocator", "hardware", "labels", "unstated", "unread",
        "micro_batch_size", "gradient_accumulation_steps", "sequence_length", "target_length", "image_pixels",
        "packing", "padded", "longest_batch_first", "further_heads", "activation_checkpointing", "checkpoint_policy",
        "checkpoint_every", "reentrant", "attention", "without_transformer_engine", "liger_kernels", "liger_parts",
        "compile",
    )
}  # fmt: skip
"""Fields of a job that no parameter depends on, at their defaults: jobs that differ in these alone ask once."""


@recalled(64)
def _parameters(job: Job, model: Model) -> tuple[Parameter, ...]:
    dtype = base_dtype(job, model)
    quantization = effective_quantization(job, model)
    if quantization is not None:
        job = replace(job, weights=replace(job.weights, quantization=quantization))
    found: list[Parameter] = []
    names = () if _deepspeed_casts(job) else kept(job, model)
    for tensor in model.tensors:
        if tensor.role == "head" and job.objective == "reward" and not job.loss.logits_unused:
            continue
        shape, layers = divided(tensor, job, model)
        if layers is not None and not layers:
            continue
        found.extend(_base(tensor, shape, layers, stored(tensor, dtype, names), quantization, job, model))
    adapter = adapter_parameters(job, model, adapter_dtype(job, dtype))
    copies = saved_copies(found, job, model)
    buffers = [*(item for item in found if item.part == "buffer"), *caches(job, model), *tables(job, model, dtype)]
    base = [item for item in found if item.part != "buffer"]
    if stabilises(job, quantization):
        base = stabilised(base)
    cast = _upcast([*base, *adapter, *copies, *buffers], job, quantization)
    return tuple(_flattened(_idle(cast, job, model), job))


INDEXER = ".indexer."
"""What transformers runs under `torch.no_grad` (models/deepseek_v32, glm_moe_dsa, deepseek_v4: `*Indexer.forward`)."""


def _idle(items: list[Parameter], job: Job, model: Model) -> list[Parameter]:
    """Trainable parameters that no loss reaches, which get neither gradient nor optimizer state.

    Modules that run without autograd, a head whose logits nobody uses, and of text alone a tower and the layers that
    attend to what it makes. ZeRO flattens them with the others, and frameworks with code of their own may train them.
    """
    if not of_transformers(job) or job.parallelism.zero is not None:
        return items
    unused = (*(() if job.images != 0 else ("vision", "projector")), *(("head",) if job.loss.logits_unused else ()))
    indexed = bool(model.shape.indexer_layers)
    crossing = model.shape.cross_layers if job.images == 0 and not model.shape.encoder_layers else ()
    items = [part for item in items for part in _parted(item, crossing)]
    return [
        item._replace(trainable=False, idle=True)
        if item.trainable
        and (item.role in unused or (indexed and INDEXER in item.name) or (item.layers and item.layers[0] in crossing))
        else item
        for item in items
    ]


def _parted(item: Parameter, layers: tuple[int, ...]) -> list[Parameter]:
    """A trainable parameter of the decoder in those of its layers that are named, and in the others."""
    if not item.trainable or item.layers is None or item.role in OTHER_PARTS:
        return [item]
    inside = tuple(layer for layer in item.layers if layer in layers)
    outside = tuple(layer for layer in item.layers if layer not in layers)
    return [item._replace(layers=part, copies=len(part)) for part in (outside, inside) if part]


def gathered_dtype(job: Job) -> str | None:
    """The dtype in which FSDP gathers parameters; None where each keeps its own (or there is no FSDP).

    `no_shard` is DDP's layout but has the same policy. Source: torch FSDP `MixedPrecision.param_dtype`, FSDP 2
    `MixedPrecisionPolicy`; accelerate sets it to the autocast dtype when it upcasts.
    """
    fsdp = job.parallelism.fsdp
    if fsdp is None:
        return None
    return fsdp.mixed_precision.param_dtype or (job.precision.autocast if fsdp.upcast_trainable else None)


def base_dtype(job: Job, model: Model) -> str:
    """The dtype of the unpacked base weights."""
    dtype = job.weights.dtype or model.dtype or "float32"
    return dtype if dtype in DTYPE_BYTES else "bfloat16"


def elements(items: Iterable[Parameter]) -> int:
    """Elements of several parameters."""
    return sum(item.elements for item in items)


def allocated(items: Iterable[Parameter]) -> int:
    """Bytes of several parameters, as torch's allocator counts them."""
    return sum(item.allocated for item in items)


def is_packed(tensor: Tensor, quantization: Quantization | None) -> bool:
    """Whether a quantisation method packs a tensor in the layers that its skip list leaves.

    The output head stays as it is unless the quantisation's `head` says otherwise, and so does what `skip` names. Fused
    expert tensors are not nn.Linear: a method for `experts` (mxfp4) packs them alone, another one where the
    quantisation's `experts` says so. A method for the `decoder` (AWQ, GPTQ) leaves towers and projectors alone.
    """
    if quantization is None or tensor.buffer:
        return False
    expert = tensor.role.startswith("expert_") and len(tensor.shape) == 3
    layout = storage.packing(quantization)
    if layout is not None and layout.what == "decoder" and tensor.role in OTHER_PARTS:
        return False
    kind = (
        expert
        if layout is not None and layout.what == "experts"
        else tensor.linear and (tensor.role != "head" or quantization.head)
    )
    return (kind or (expert and quantization.experts)) and skipped_layers(tensor, quantization) is not True


def _base(
    tensor: Tensor,
    shape: tuple[int, ...],
    layers: tuple[int, ...] | None,
    dtype: str,
    quantization: Quantization | None,
    job: Job,
    model: Model,
) -> list[Parameter]:
    copies = 1 if layers is None else len(layers)
    size = prod(shape)
    quantization = _own(tensor, quantization)
    if tensor.buffer:
        pieces: tuple[int, ...] = (int(size * (1 if tensor.role == "mask" else storage.dtype_bytes(dtype))),)
        return [Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces, "buffer")]
    if quantization is not None and is_packed(tensor, quantization):
        pieces = storage.packed_pieces(shape, quantization)
        packed = Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces, packed=True)
        skipped = skipped_layers(tensor, quantization)
        if layers is None or not isinstance(skipped, tuple) or not (kept := _both(layers, skipped)):
            return [packed]
        unpacked = _base(tensor._replace(layers=kept), shape, kept, dtype, None, job, model)
        if _kbit(job, quantization):
            unpacked = [_cast(item, _prepared(tensor, job)) for item in unpacked]
        rest = tuple(layer for layer in layers if layer not in kept)
        return [*([packed._replace(layers=rest, copies=len(rest))] if rest else []), *unpacked]
    if dtype == "float8" and not tensor.linear:
        dtype = "bfloat16"
    if any(part in tensor.name for part in job.weights.float32) and not _deepspeed_casts(job):
        dtype = "float32"
    if _kbit(job, quantization):
        dtype = _prepared(tensor, job)
    whole = Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces_of(shape, dtype))
    chosen = trainable_layers(tensor, layers, job, model)
    if chosen is None:
        return [whole]
    if layers is None or len(chosen) == len(layers):
        return [whole._replace(trainable=True)]
    frozen = tuple(layer for layer in layers if layer not in chosen)
    return [
        whole._replace(layers=frozen, copies=len(frozen)),
        whole._replace(layers=chosen, copies=len(chosen), trainable=True),
    ]


def _own(tensor: Tensor, quantization: Quantization | None) -> Quantization | None:
    """The quantisation with the method that `modules` names for this tensor; experts are fused here and go by role."""
    if quantization is None or not quantization.modules:
        return quantization
    module = f".{tensor.module}."
    for name, method in quantization.modules.items():
        last = name.rpartition(".")[2]
        if f".{name}." in module or (last == "experts" and tensor.role.startswith("expert_")):
            return replace(quantization, method=method, bits=None, group_size=None)
    return quantization


def _both(layers: tuple[int, ...], skipped: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(layer for layer in layers if layer in skipped)


def _kbit(job: Job, quantization: Quantization | None) -> bool:
    if job.adapter is None or not job.adapter.prepare_kbit or quantization is None:
        return False
    if _deepspeed_casts(job):
        return False
    layout = storage.packing(quantization)
    return layout is not None and layout.casts


def _prepared(tensor: Tensor, job: Job) -> str:
    """The dtype after k-bit preparation (trl/trainer/utils.py 0.13 `peft_module_casting_to_bf16` for the exception)."""
    taken_back = job.adapter.prepared_head if job.adapter is not None else None
    return taken_back if taken_back and tensor.role in ("embedding", "position", "head") else "float32"


def _deepspeed_casts(job: Job) -> bool:
    """Stages 0 to 2, and stage 3 over packed weights, which `zero.Init` leaves alone; after it nothing is cast."""
    zero = job.parallelism.zero
    if zero is None or not job.precision.master_weights:
        return False
    return zero.stage < 3 or job.weights.quantization is not None


def adapter_dtype(job: Job, dtype: str) -> str:
    """PEFT keeps adapters in float32 over 16-bit and packed bases (`cast_adapter_dtype`), DeepSpeed casts them back.

    From 0.7 to 0.11 `update_layer` gave them the dtype of a floating base (peft/tuners/lora/layer.py); in 0.6 the layer
    had no base yet when it ran.
    """
    if _deepspeed_casts(job):
        return dtype if dtype in ("bfloat16", "float16") else (job.precision.autocast or "bfloat16")
    adapter = adapter_of(job)
    if adapter is not None and adapter.dtype is not None:
        return adapter.dtype
    if dtype == "float64":
        return dtype
    follows = Stack(job).does(FOLLOWS_BASE_DTYPE) and job.weights.quantization is None
    return dtype if follows else "float32"


def _upcast(items: list[Parameter], job: Job, quantization: Quantization | None) -> list[Parameter]:
    fsdp = job.parallelism.fsdp
    trained = job.weights.trainable_dtype
    if trained is not None:
        items = [_cast(item, trained) if item.trainable and item.part in ("base", "copy") else item for item in items]
    if fsdp is None or not fsdp.upcast_trainable:
        return items
    if fsdp.version == 2 and quantization is not None and quantization.method in ("bnb-nf4", "bnb-fp4"):
        return items
    return [_cast(item, "float32") if item.trainable else item for item in items]


def _flattened(items: list[Parameter], job: Job) -> list[Parameter]:
    """Frozen parameters that FSDP 1 flattens into one parameter with trained ones, marked as `swept`.

    A unit is a layer, the root what is not wrapped. Adapter modules, and trained copies of modules, are units of their
    own where the policy wraps them. Version 2 leaves each parameter its own gradient.
    Source: torch 2.13 distributed/fsdp/wrap.py `_validate_frozen_params`, _flat_param.py `_use_unsharded_views`.
    """
    fsdp = job.parallelism.fsdp
    if fsdp is None or fsdp.version != 1 or not fsdp.use_orig_params:
        return items
    own = ("adapter", "copy") if fsdp.wrap_adapters and not framework(job).adapters_inside else ()
    mixed = {layer for item in items if item.trainable and item.part not in own for layer in _unit_layers(item, fsdp)}
    found: list[Parameter] = []
    for item in items:
        if item.trainable or item.packed or item.part in (*own, "buffer"):
            found.append(item)
            continue
        layers = _unit_layers(item, fsdp)
        swept = tuple(layer for layer in layers if layer in mixed)
        if not swept:
            found.append(item)
        elif len(swept) == len(layers):
            found.append(item._replace(swept=True))
        else:
            rest = tuple(layer for layer in layers if layer not in mixed)
            found.append(item._replace(layers=rest, copies=len(rest)))
            found.append(item._replace(layers=swept, copies=len(swept), swept=True))
    return found


def _unit_layers(item: Parameter, fsdp: Fsdp) -> tuple[int, ...]:
    """The layers whose units hold a parameter; -1 is the root."""
    return (-1,) if item.layers is None or fsdp.wrap == "none" else item.layers


def _cast(item: Parameter, dtype: str) -> Parameter:
    return item._replace(dtype=dtype, pieces=pieces_of(item.shape, dtype))


def trainable_layers(tensor: Tensor, layers: tuple[int, ...] | None, job: Job, model: Model) -> tuple[int, ...] | None:
    """The layers in which a base tensor is trained; () outside a stack when it is, None when it is not at all.

    Without patterns everything is trained but for a job with an adapter, some of which train norms. `trainable`
    patterns are regular expressions searched in the parameter's full name.
    """
    if tensor.frozen:
        return None
    if job.adapter is not None and trains(tensor, model, job.adapter.type):
        return layers or ()
    if job.trainable is None:
        return (layers or ()) if job.adapter is None and job.method != "lora" else None
    patterns = [_compiled(pattern) for pattern in job.trainable]
    if layers is None:
        return () if any(pattern.search(tensor.name) for pattern in patterns) else None
    names = {layer: tensor.name.replace("{0}", str(layer)) for layer in layers}
    chosen = tuple(layer for layer, name in names.items() if any(pattern.search(name) for pattern in patterns))
    return chosen or None


def _compiled(pattern: str) -> re.Pattern[str]:
    """Literal text where it is no regular expression, or a costly one."""
    try:
        return expression(pattern)
    except NotAdaptable:
        return re.compile(re.escape(pattern))
