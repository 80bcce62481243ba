"""What torchtune's model builders put on the GPU beside weights: rotary caches, and the layer that the others copy.

Source: torchtune 0.2.1 to 0.6.1, models/*/_component_builders.py, modules/position_embeddings.py, and up to 0.5
`_get_clones` of modules/transformer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....models.model import text_config
from ....upstream import torchtune
from ....upstream.stack import Stack
from ..parameter import Parameter, pieces_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.model import Model


def clones(job: Job, scaled: bool) -> bool:
    """Whether a builder made one layer and copied it, its rotary cache too; `scaled` for Llama 3.1's rotary module."""
    return Stack(job).does(torchtune.COPIES_SCALED_LAYERS if scaled else torchtune.COPIES_LAYERS)


def caches(job: Job, model: Model) -> list[Parameter]:
    """Cosines and sines of every position, 4 B x positions x head_dim, once or in each layer.

    Layers with LoRA have modules of their own, but those of Llama 3.1 and 3.2.
    """
    shape, scaled = model.shape, _scaled(model)
    if not Stack(job).runs(torchtune.NAME) or not shape.max_positions or not shape.head_dim:
        return []
    each = clones(job, scaled) or (job.method == "lora" and not scaled)
    size = (shape.max_positions, shape.head_dim)
    copies = shape.layers if each else 1
    return [Parameter("rope.cache", size, copies, None, "rope", "float32", pieces_of(size, "float32"), "buffer")]


def template(found: Sequence[Parameter], job: Job, model: Model) -> int:
    """Bytes of the layer that the others were copied from, alive until the model is whole.

    For one GPU: recipes that shard build the model without memory.
    """
    if not clones(job, _scaled(model)):
        return 0
    layers = {layer for item in found for layer in item.layers or ()}
    inside = sum(item.allocated for item in found if item.layers)
    rope = sum(item.allocated // item.copies for item in found if item.role == "rope")
    return inside // max(1, len(layers)) + rope


def _scaled(model: Model) -> bool:
    return bool(text_config(model.config).get("rope_scaling"))
