"""DeepSpeed's `estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs`.

P parameters, N GPUs, 16-bit training with Adam; activations and buffers are not counted.
  stage 2: 2 P + 18 P / N;  optimizer offloaded: 2 P
  stage 3: 4 L + 18 P / N;  optimizer offloaded: 4 L + 2 P / N;  parameters too: 4 L
L is the largest number of parameters that one module holds itself (not in its children).
Source: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py (0.18.2); docs/code-docs/source/memory.rst.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpulint.models.model import Model

    from .question import Question


def answer(q: Question) -> float:
    """Model states on one GPU. Raises Unsaid."""
    zero = q.job.parallelism.zero
    q.full_training()
    q.adam()
    if zero is None or zero.stage < 2:
        q.need(False, "no ZeRO stage 2 or 3")
        raise AssertionError
    optimizer, weights = zero.offload_optimizer.device != "none", zero.offload_parameters.device != "none"
    if zero.stage == 2:
        return float(zero2(q.parameters, q.job.data_parallel, offload=optimizer))
    return float(zero3(q.parameters, largest(q.model), q.job.data_parallel, optimizer, weights))


def zero2(parameters: int, gpus: int, *, offload: bool) -> int:
    """Bytes on a GPU of stage 2."""
    return 2 * parameters if offload else 2 * parameters + 18 * parameters // gpus


def zero3(parameters: int, layer: int, gpus: int, optimizer: bool, weights: bool) -> int:
    """Bytes on a GPU of stage 3, with `layer` parameters in the largest module; the flags say what is offloaded."""
    if not optimizer:
        return 4 * layer + 18 * parameters // gpus
    return 4 * layer if weights else 4 * layer + 2 * parameters // gpus


def largest(model: Model) -> int:
    """The most parameters that one module holds itself."""
    modules: dict[str, int] = defaultdict(int)
    for tensor in model.tensors:
        if not tensor.buffer:
            modules[tensor.module] += tensor.size
    return max(modules.values())
