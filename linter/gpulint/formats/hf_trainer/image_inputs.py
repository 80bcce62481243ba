"""What a config says of the images that its model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import POSITIVE
from ..core.bindings.rows import LEAVE, Default, Key
from ..core.model_facts import find_model

if TYPE_CHECKING:
    from ..core.bindings.reader import Reader
    from ..core.format import JobBuilder


def at_most(reader: Reader, key: str, default: int | None = None) -> None:
    """The most pixels that an image keeps: a larger one is made smaller, a smaller one stays as it is."""
    note = "the most that an image keeps"
    usual = LEAVE if default is None else Default(default, f"{note}: default of {reader.upstream}")
    if reads_images(reader, reader.project.root):
        reader.bind((Key("image_pixels", key, POSITIVE, usual, note=note),))


def reads_images(builder: JobBuilder, root: str) -> bool:
    """Whether the config's model is known to have a vision tower."""
    model = find_model(builder.job.model, builder.document.path, root)
    return model is not None and any(tensor.role == "vision" for tensor in model.tensors)
