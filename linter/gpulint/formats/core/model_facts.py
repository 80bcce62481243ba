"""What a format needs to know of the model that a config names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...models.model import Model


def find_model(reference: object, path: str, root: str) -> Model | None:
    """The model that the config at `path` names; None when it is not known."""
    if not isinstance(reference, (str, dict)) or not reference:
        return None
    from ...models.model import UnknownModel
    from ...models.resolve import resolve

    try:
        return resolve(reference, os.path.dirname(os.path.abspath(path)), root)
    except UnknownModel:
        return None


def hidden_size(reference: object, path: str, root: str) -> int | None:
    """The model's `hidden_size`, from which Transformers fills "auto" in DeepSpeed configs; None when not known."""
    model = find_model(reference, path, root)
    return model.shape.hidden if model is not None else None
