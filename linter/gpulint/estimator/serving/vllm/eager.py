"""What torch's allocator holds after the profile run of the vLLM releases that ask the driver for it.

Until 0.6.3 the profile run counts as the free memory before the model less that after the run, without an
`empty_cache` in between: every segment that the run opened counts, whether it is in use at the peak or not.
Source: vllm 0.2.5 to 0.6.3.post1 worker/worker.py `determine_num_available_blocks`; model_executor/models/llama.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...allocator.allocator import Allocator
from .activations import padded_vocabulary
from .items import requests_profiled
from .profile import sampler

if TYPE_CHECKING:
    from ....models.model import Model
    from ...allocator.allocator import Policy
    from .settings import Settings

_LAYERS = 3
"""Layers after which no further one opens a segment: each asks for the sizes of the one before."""


def reserved_run(model: Model, settings: Settings, element: float, tensor: int, rules: Policy) -> int | None:
    """Bytes that the eager run of a dense model reserves on one rank; None for experts and latent attention.

    Each layer makes, in this order: queries, keys and values, attention's output, its projection, the MLP's doubled
    projection, their product and its projection. What a function was given lives until it returns. Where the release
    lets NCCL's stream hold what it reduces, and the host runs ahead of the card, none of the two sums of a layer is
    free again before the run ends (torch record_stream; TORCH_NCCL_AVOID_RECORD_STREAMS=1 since 0.2.7).
    """
    shape = model.shape
    if shape.experts or shape.kv_lora_rank or any(shape.recurrent_states):
        return None
    memory = Allocator(policy=rules)
    each = element * settings.max_num_batched_tokens
    hidden = round(each * shape.hidden)
    queries = round(each * shape.heads * shape.head_dim / tensor)
    keys = round(each * shape.kv_heads * shape.head_dim / tensor)
    inner = round(each * shape.intermediate / tensor)
    wide = 2 * inner if shape.mlp == "gated" else inner
    residual, normed = memory.take(hidden), memory.take(hidden)
    for _ in range(_LAYERS):
        projected = memory.take(queries + 2 * keys)
        attended = memory.take(queries)
        output = memory.take(hidden)
        for block in (projected, attended, normed):
            memory.give(block)
        doubled = memory.take(wide)
        product = memory.take(inner)
        normed = memory.take(hidden)
        for block in (doubled, product, output):
            memory.give(block)
    memory.give(residual)
    requests = requests_profiled(model, settings)
    logits = requests * padded_vocabulary(model)
    for size in sampler("sort").blocks:
        memory.take(logits * size)
    held = 2 * (shape.layers - 1) * hidden if settings.profile.sums_held and tensor > 1 else 0
    return memory.reserved + held
