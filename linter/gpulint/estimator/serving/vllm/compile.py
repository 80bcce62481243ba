"""What lies on the GPU while vLLM compiles a model that it finds no compiled form of.

vLLM hands each piece of a model to Inductor's `standalone_compile`, which runs every kernel on random tensors as large
as all that it reads and writes (`autotune_at_compile_time`: torch/_inductor/standalone_compile.py, codegen/wrapper.py
`generate_example_value`; torch 2.9 to 2.14). The first kernel of the first piece reads the embedding. All this is
inside the profile run, whose peak vLLM takes off the cache, so that a first start gets a smaller cache than later ones,
which find the compiled model (vllm issues 54122 and 54383).

    one GPU     e (V h + 2 T h)     e bytes of an element, V padded vocabulary, h hidden size, T tokens of a batch:
                                    the embedding, hidden states and their norm, which one kernel makes
    t ranks     e (V h / t + T h)   the norm comes after the ranks' sum

A model that is given embeddings, as vLLM's multimodal ones are, compiles none. The tensors of other kernels are smaller
than what the profile run has of its own.
Source: VLLM_USE_STANDALONE_COMPILE (`tries_kernels` in vllm.json), v1/worker/gpu_worker.py
`determine_available_memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.serving.vllm import COUNTS_SEGMENTS, SPLITS_NO_LARGE_BLOCK
from ...allocator.allocator import segments
from ...terms import Product
from .activations import padded_vocabulary
from .encoders import takes_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....models.model import Model
    from ...terms import Term
    from .settings import Settings


def compiling(model: Model, settings: Settings, element: float, tensor: int) -> tuple[Product, ...]:
    """The tensors of the kernel that reads the embedding; none where nothing or no embedding is compiled."""
    if (
        settings.given.enforce_eager
        or not settings.profile.tries_kernels
        or takes_items(model, settings.modalities_off)
    ):
        return ()
    vocabulary, hidden = padded_vocabulary(model), model.shape.hidden
    batch, made = (settings.max_num_batched_tokens, "tokens"), 2 if tensor == 1 else 1
    return (
        Product("a random copy of the embedding, to try a kernel on", element, (vocabulary, hidden), tensor),
        Product("what that kernel makes of it", element, (batch, made, hidden)),
    )


def held_open(compiled: Sequence[Term], version: str | None) -> int:
    """The most that counts once more: the copy's segment, where something that stays was cut from it meanwhile."""
    if not compiled or not COUNTS_SEGMENTS.at(version) or SPLITS_NO_LARGE_BLOCK.at(version):
        return 0
    return segments(compiled[0].size)
