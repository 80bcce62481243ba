"""Every parameter as one rank holds it: divided by tensor, pipeline and expert parallelism, with dtype and packing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import DTYPE_BYTES
from . import storage
from .adapter import adapter_of, adapter_parameters, saved_copies
from .division import divided
from .parameter import Parameter as Parameter
from .parameter import pieces_of, size_of
from .trainable import trainable_layers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..job import Job, Quantization
    from ..models.model import Model, Tensor


def parameters(job: Job, model: Model) -> tuple[Parameter, ...]:
    """The parameters of the rank that holds most, base first, then adapter and trained copies, then buffers.

    The dtype of a base weight is `weights.dtype`, else the checkpoint's, else float32; `weights.trainable_dtype` is
    that of what is trained. k-bit preparation makes all that bitsandbytes left unpacked float32 (peft/utils/other.py
    `prepare_model_for_kbit_training`); DeepSpeed's 16-bit modes cast every floating parameter to the weights' dtype
    (runtime/engine.py `_cast_module_mixed_precision`); FSDP's mixed precision in accelerate makes trainable ones
    float32.
    """
    dtype = base_dtype(job, model)
    quantization = effective_quantization(job, model)
    found: list[Parameter] = []
    for tensor in model.tensors:
        if tensor.role == "head" and job.objective == "reward":
            continue
        shape, layers = divided(tensor, job, model)
        if layers is not None and not layers:
            continue
        found.extend(_base(tensor, shape, layers, dtype, quantization, job))
    adapter = adapter_parameters(job, model, adapter_dtype(job, dtype))
    copies = saved_copies(found, job, model)
    buffers = [item for item in found if item.part == "buffer"]
    base = [item for item in found if item.part != "buffer"]
    return tuple(_upcast([*base, *adapter, *copies, *buffers], job, quantization))


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


def effective_quantization(job: Job, model: Model) -> Quantization | None:
    """The job's quantisation, else the checkpoint's own (`quantization_config` of its config.json).

    Training over an MXFP4 checkpoint unpacks it to 16 bits (transformers Mxfp4HfQuantizer, `dequantize`).
    """
    from .checkpoint import stored_quantization

    if job.weights.quantization is not None:
        return job.weights.quantization
    stored = stored_quantization(model)
    if stored is not None and stored.method == "mxfp4" and job.kind == "training":
        return None
    return stored


def elements(items: Iterable[Parameter]) -> int:
    """Elements of several parameters."""
    return sum(item.elements for item in items)


def allocated(items: Iterable[Parameter]) -> int:
    """Bytes of several parameters, as torch's allocator counts them."""
    return sum(item.allocated for item in items)


def is_packed(tensor: Tensor, quantization: Quantization | None) -> bool:
    """Whether a quantisation method packs a tensor.

    The output head stays as it is, and what `skip` names (a module's full name or a dotted part of it). Fused
    expert tensors of transformers 5 are not nn.Linear: only a method for `experts` (mxfp4) packs them.
    """
    if quantization is None or tensor.buffer:
        return False
    layout = storage.packing(quantization)
    if layout is not None and layout.what == "experts":
        kind = tensor.role.startswith("expert_") and len(tensor.shape) == 3
    else:
        kind = tensor.linear and tensor.role != "head"
    return kind and not any(_names(skip, tensor.module) for skip in quantization.skip)


def _names(skip: str, module: str) -> bool:
    skip = skip.removesuffix(".weight")
    return module == skip or f".{skip}." in f".{module}."


def _base(
    tensor: Tensor,
    shape: tuple[int, ...],
    layers: tuple[int, ...] | None,
    dtype: str,
    quantization: Quantization | None,
    job: Job,
) -> list[Parameter]:
    copies = 1 if layers is None else len(layers)
    size = size_of(shape)
    if tensor.buffer:
        pieces: tuple[int, ...] = (int(size * storage.dtype_bytes(dtype)),)
        return [Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces, "buffer")]
    if quantization is not None and is_packed(tensor, quantization):
        pieces = storage.packed_pieces(shape, quantization)
        return [Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces, packed=True)]
    if dtype == "float8" and not tensor.linear:
        dtype = "bfloat16"
    if _kbit(job, quantization):
        dtype = "float32"
    whole = Parameter(tensor.name, shape, copies, layers, tensor.role, dtype, pieces_of(shape, dtype))
    chosen = trainable_layers(tensor, layers, job)
    if chosen is None:
        return [whole]
    if layers is None or len(chosen) == len(layers):
        return [whole._replace(trainable=True)]
    frozen = tuple(layer for layer in layers if layer not in chosen)
    return [
        whole._replace(layers=frozen, copies=len(frozen)),
        whole._replace(layers=chosen, copies=len(chosen), trainable=True),
    ]


def _kbit(job: Job, quantization: Quantization | None) -> bool:
    if job.adapter is None or not job.adapter.prepare_kbit or quantization is None:
        return False
    if _deepspeed_casts(job):
        return False
    layout = storage.packing(quantization)
    return layout is not None and layout.casts


def _deepspeed_casts(job: Job) -> bool:
    """Stages 0 to 2, and stage 3 over packed weights, which `zero.Init` leaves alone; after it nothing is cast."""
    zero = job.parallelism.zero
    if zero is None or not job.precision.master_weights:
        return False
    return zero.stage < 3 or job.weights.quantization is not None


def adapter_dtype(job: Job, dtype: str) -> str:
    """PEFT keeps adapters in float32 over 16-bit and packed bases (`cast_adapter_dtype`), DeepSpeed casts them back."""
    if _deepspeed_casts(job):
        return dtype if dtype in ("bfloat16", "float16") else (job.precision.autocast or "bfloat16")
    adapter = adapter_of(job)
    if adapter is not None and adapter.dtype is not None:
        return adapter.dtype
    return "float64" if dtype == "float64" else "float32"


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


def _cast(item: Parameter, dtype: str) -> Parameter:
    return item._replace(dtype=dtype, pieces=pieces_of(item.shape, dtype))
