"""Tied models that Transformers 5.0 to 5.3 load with a head of their own, as their files hold it a second time.

From 5.0 on `tie_weights` does not tie what the checkpoint has both of; 5.4 ties it again where both are equal
(modeling_utils.py). Head and embeddings are then two parameters, each with gradient and optimizer states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..upstream.transformers import UNTIES_STORED_HEADS

if TYPE_CHECKING:
    from .model import Model

HEADS_STORED = frozenset({"qwen/qwen3-0.6b", "qwen/qwen3-1.7b"})
"""Tied checkpoints whose files hold the head too: the hub counts 751,632,384 and 2,031,739,904 elements in their
safetensors, which is vocabulary times hidden size (151,936 x 1,024 and x 2,048) more than the models have."""


def as_loaded(model: Model, transformers: str | None) -> Model:
    """The model as `from_pretrained` of a release of Transformers makes it; None is the current one, which ties."""
    if not UNTIES_STORED_HEADS.at(transformers) or model.id.lower() not in HEADS_STORED:
        return model
    from .build import build

    return build({**model.config, "tie_word_embeddings": False}, model.id, model.source)
