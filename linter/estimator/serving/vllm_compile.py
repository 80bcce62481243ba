"""What lies on the GPU while vLLM compiles a model that it finds no compiled form of.

Inductor times the kernels that it would combine, on random tensors as large as all that each reads and writes
(torch/_inductor/scheduler.py `speedup_by_combo_kernel`, codegen/triton.py `codegen_kernel_benchmark`). The first one
reads the embedding. vLLM compiles inside its profile run, whose peak it takes off the cache, so that a first start gets
a smaller cache than later ones, which find the compiled model (vllm issues 54122 and 54383).

    e (V h / t + 2 T h)    e bytes of an element, V padded vocabulary, h hidden size, t tensor-parallel ranks,
                           T tokens of a batch: the embedding, the hidden states and their norm

A model that is given embeddings, as vLLM's multimodal ones are, compiles none.
Source: vllm/config/compilation.py `benchmark_combo_kernel` (`times_kernels` in vllm.json), v1/worker/gpu_worker.py
`determine_available_memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..product import Product
from .vllm_activations import padded_vocabulary
from .vllm_towers import takes_items

if TYPE_CHECKING:
    from ...models.model import Model
    from .vllm_settings import Settings


def compiling(model: Model, settings: Settings, element: float, tensor: int) -> tuple[Product, ...]:
    """The tensors of the timed kernel that reads the embedding; none where nothing or no embedding is compiled."""
    if settings.eager or not settings.times_kernels or takes_items(model, settings.modalities_off):
        return ()
    batch, hidden = (settings.max_num_batched_tokens, "tokens"), model.shape.hidden
    return (
        Product(
            "a random copy of the embedding, to time a kernel", element, (padded_vocabulary(model), hidden), tensor
        ),
        Product("what that kernel makes", element, (batch, 2, hidden)),
    )
