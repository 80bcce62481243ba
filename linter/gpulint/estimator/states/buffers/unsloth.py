"""What Unsloth's own classes keep on the GPU beside weights: tables of rotary embeddings, and Gemma 2's causal masks.

Source: unsloth 2024.8 to 2026.8 models/llama.py (`LlamaRotaryEmbedding`, `LlamaModel_fast_forward`), gemma.py
(`GemmaFixedRotaryEmbedding`), and the repository's history before 2024.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....models.model import text_config
from ....units import DTYPE_BYTES
from ....upstream import unsloth
from ....upstream.stack import Stack
from ...frameworks.unsloth import ATTENTIONS, compiles_scores
from ..parameter import Parameter, pieces_of

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model

FAMILIES = ATTENTIONS | {"gemma2"}
"""Model types to which Unsloth gives a rotary module of its own (`pre_patch` of models/llama.py, mistral.py, qwen2.py,
qwen3.py, gemma.py, gemma2.py)."""

WIDE = frozenset({"gemma", "gemma2"})
"""Families whose tables stay float32 ("RoPE must be done in float32 for Gemma"); others get the head's dtype."""

GROWN_BY = 8192
"""Positions of a step by which tables grow from 4 of them on (`GROWING_TABLES`)."""


def tables(job: Job, model: Model, dtype: str) -> list[Parameter]:
    """Cosines and sines, positions x head_dim each, once a layer or once: of min(4 x GROWN_BY, positions) at first.

    Positions are the longer of the model's and the run's; with LongRoPE the table of short sequences has those that the
    model was made with.
    """
    stack, shape, positions = Stack(job), model.shape, _positions(job, model)
    shared = stack.does(unsloth.SHARED_TABLES)
    own = stack.runs(unsloth.NAME) and model.model_type in FAMILIES
    if job.kind != "training" or not own or not positions or not shape.head_dim:
        return []
    width = "float32" if model.model_type in WIDE else dtype
    size = (_rows(positions, job, model), shape.head_dim)
    copies = 2 * (1 if shared else shape.layers)
    return [Parameter("rotary_emb", size, copies, None, "rope", width, pieces_of(size, width), "buffer")]


def masks(job: Job, model: Model, dtype: str) -> int:
    """Bytes of Gemma 2's two causal masks of all positions, with and without a window, in the hidden states' dtype.

    Made with the first batch, where neither flash-attn takes the scores nor flex attention brings its own masks.
    """
    if not compiles_scores(job, model):
        return 0
    return int(2 * DTYPE_BYTES[job.precision.autocast or dtype] * _positions(job, model) ** 2)


def _positions(job: Job, model: Model) -> int:
    return max(job.sequence_length or 0, model.shape.max_positions or 0)


def _rows(positions: int, job: Job, model: Model) -> int:
    """Positions of the tables that a run needs: those at first, or as many steps as its length takes."""
    if not Stack(job).does(unsloth.GROWING_TABLES):
        return positions
    scaling = text_config(model.config).get("rope_scaling") or {}
    config = text_config(model.config)
    made_with = scaling.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    if made_with and scaling.get("rope_type", scaling.get("type")) == "longrope":
        return min(int(made_with), positions)
    first, length = min(4 * GROWN_BY, positions), job.sequence_length or 0
    return first if length <= first else -(-length // GROWN_BY) * GROWN_BY
