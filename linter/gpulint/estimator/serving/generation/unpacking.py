"""What the kernels of packed weights unpack while Transformers generates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ....upstream import bitsandbytes, transformers
from ....upstream.stack import Stack
from ...frameworks.frameworks import framework
from ...states.quantization import effective_quantization

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameters import Parameter


class Unpacking(NamedTuple):
    """Bytes for each element of a packed weight.

    resident   kept for the largest weight from the start
    making     of the weight in use while it is unpacked, before the product has an output
    using      of the unpacked weight during the product
    rows       the rows of input from which on it is unpacked
    """

    resident: float = 0.0
    making: float = 0.0
    using: float = 0.0
    rows: int = 1

    def at(self, rows: int) -> Unpacking:
        """What a product of so many rows takes."""
        return self if rows >= self.rows else Unpacking(self.resident)


def unpacking(job: Job, model: Model) -> Unpacking:
    """How the kernels that Transformers loads for the job's quantisation read their weights.

    bitsandbytes 4 bits   a 16-bit copy, 2 B; over float16 with the default compute dtype also its float32 cast, 6 B,
                          which is what multiplies, 4 B (nn/modules.py `Linear4bit.set_compute_type`,
                          functional.py `dequantize_4bit`). From two rows on, in 0.50 and later from 1,537.
    GPTQ 4 bits           ExLlama's `temp_dq`, one fp16 buffer for the largest weight, 2 B (auto_gptq 0.7.1
                          modeling/_utils.py `autogptq_post_init`); none in Marlin, which GPTQModel takes
                          (transformers 4.48 and later).
    GPTQ other bits       int16 codes, their difference to the zeros and its product with the scales, 6 B, of
                          which 2 B multiply, from 128 rows on (nn_modules/qlinear/qlinear_cuda_old.py)
    AWQ                   a 16-bit copy, 2 B, from 1,024 rows on (autoawq 0.2.6 modules/linear/gemm.py)
    """
    quantization = effective_quantization(job, model)
    if quantization is None:
        return Unpacking()
    method = quantization.method.lower()
    if method in ("bnb-nf4", "bnb-fp4"):
        casts = (job.weights.dtype or model.dtype) == "float16"
        current = not _old_bitsandbytes(job)
        making = 6 if casts else 4 if framework(job).unpacks_twice else 2
        return Unpacking(making=making, using=4 if casts else 2, rows=1537 if current else 2)
    if method == "gptq" and Stack(job).does(transformers.AUTO_GPTQ):
        return Unpacking(resident=2) if quantization.bits in (None, 4) else Unpacking(making=6, using=2, rows=128)
    if method == "awq":
        return Unpacking(making=2, using=2, rows=1024)
    return Unpacking()


def largest_packed(found: Iterable[Parameter]) -> int:
    """Elements of the largest packed matrix: of fused experts one expert's, as quantised checkpoints store them."""
    return max((math.prod(item.shape[-2:]) for item in found if item.packed), default=0)


def _old_bitsandbytes(job: Job) -> bool:
    """Releases before 0.50; one that nobody states is as old as the transformers beside it."""
    stack = Stack(job)
    stated = stack.version(bitsandbytes.NAME)
    return stack.does(bitsandbytes.ALWAYS_UNPACKS if stated else transformers.BEFORE_BITSANDBYTES_0_50)
