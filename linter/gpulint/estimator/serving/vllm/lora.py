"""The buffers that vLLM makes for LoRA adapters when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...states.tensor_parallel import fullest_stage
from ...terms import line

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model, Tensor
    from ...terms import Term

_COLUMN = frozenset({"q", "k", "v", "qkv", "gate", "up", "gate_up", "shared_gate", "shared_up", "mla"})
_ROW = frozenset({"o", "down", "shared_down"})


def lora_buffers(job: Job, model: Model, element: float) -> list[Term]:
    """The stacked A and B matrices on one rank: slots * rank * (in + out) for every linear layer; none without LoRA.

    Tensor parallelism divides B of column-parallel layers and A of row-parallel ones, the other half is whole on
    every rank (without fully sharded LoRA); embedding and output head have buffers too.
    Source: vllm/lora/layers/*.py `create_lora_weights` (0.33): `max_loras` 1, `max_lora_rank` 16 by default.
    """
    given = job.inference
    if given is None or not given.enable_lora:
        return []
    rank = given.max_lora_rank or 16
    slots = (given.max_loras or 1) * rank * element
    outside = 0
    layers = [0] * max(1, model.shape.layers)
    for tensor in model.tensors:
        width = _width(tensor, job.parallelism.tensor)
        if tensor.layers is None:
            outside += width
            continue
        for layer in tensor.layers:
            if width and layer < len(layers):
                layers[layer] += width
    size = round(slots * (outside + fullest_stage(layers, job.parallelism.pipeline)))
    what = f"LoRA slots of rank {rank}: both matrices of every linear layer"
    return [line("adapter", size, what, "vllm/lora/layers create_lora_weights")] if size else []


def _width(tensor: Tensor, ranks: int) -> int:
    """Rows of A plus columns of B for one rank of the adapter."""
    if len(tensor.shape) != 2:
        return 0
    out, inner = tensor.shape
    if tensor.role in ("embedding", "head"):
        return -(-out // ranks) + inner if tensor.layers is None else 0
    if not tensor.linear:
        return 0
    if tensor.role in _COLUMN:
        return -(-out // ranks) + inner
    if tensor.role in _ROW:
        return out + -(-inner // ranks)
    return 0
