"""What a config says of the images that its model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.model_facts import find_model

if TYPE_CHECKING:
    from ..core.format import JobBuilder
    from .training_arguments import Run


def at_most(run: Run, key: str, default: int | None = None) -> None:
    """The most pixels that an image keeps: a larger one is made smaller, a smaller one stays as it is."""
    if not reads_images(run.builder, run.project.root):
        return
    given = run.arguments.integer(key, least=1)
    if given:
        run.put("image_pixels", given, None, "the most that an image keeps")
    elif default is not None:
        run.builder.default("image_pixels", default, f"the most that an image keeps: default of {run.builder.upstream}")


def reads_images(builder: JobBuilder, root: str) -> bool:
    """Whether the config's model is known to have a vision tower."""
    model = find_model(builder.job.model, builder.document.path, root)
    return model is not None and any(tensor.role == "vision" for tensor in model.tensors)
