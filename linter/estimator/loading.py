"""What loading the weights needs on the GPU on top of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Job
    from .parameter import Parameter


PACKED_ON_LOAD = ("bnb", "torchao", "hqq", "quanto", "eetq", "int4", "int8")
"""Methods that pack 16-bit checkpoints as they are loaded; the others bring packed checkpoints."""


def loading(found: Sequence[Parameter], job: Job) -> int:
    """Bytes beside the weights while the last tensor is loaded.

    A bitsandbytes weight arrives in 16 bits on the GPU and is packed there, one tensor at a time
    (transformers 5.23 integrations/bitsandbytes.py `Bnb4bitQuantize.convert`): 2 B x the largest packed tensor.
    k-bit preparation makes a float32 copy of one 16-bit tensor at a time: 2 B x the largest of those, whose
    16-bit original is freed after the copy.
    """
    quantization = job.weights.quantization
    if quantization is None or not quantization.method.startswith(PACKED_ON_LOAD):
        return 0
    packed = max((2 * item.size for item in found if item.packed), default=0)
    upcast = max((2 * item.size for item in found if _was_upcast(item, found)), default=0)
    return max(packed, upcast)


def _was_upcast(item: Parameter, found: Sequence[Parameter]) -> bool:
    return item.part == "base" and item.dtype == "float32" and any(other.packed for other in found)
