"""What a config says of the images that its model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.model_facts import find_model

if TYPE_CHECKING:
    from ..axolotl.config import AxolotlConfig
    from ..core.format import JobBuilder
    from .training_arguments import Run


def axolotl(config: AxolotlConfig) -> None:
    """Without `processor_type` samples are text whatever the model (core/builders/causal.py `build_collator`).

    `image_size` is what each image is resized to: the length of both sides, or height and width.
    """
    if not _reads(config.builder, config.project.root):
        return
    if not config.keys.raw("processor_type"):
        config.builder.derived("images", 0, "no processor_type: samples are text", "model")
        return
    size = config.keys.raw("image_size")
    if size is None:
        return
    sides = size.value if isinstance(size.value, list) else [size.value, size.value]
    lengths = [side for side in sides if isinstance(side, int) and side > 0]
    if len(lengths) == len(sides) == 2:
        config.put("image_pixels", size, lengths[0] * lengths[1])


def at_most(run: Run, key: str, default: int | None = None) -> None:
    """The most pixels that an image keeps: a larger one is made smaller, a smaller one stays as it is."""
    if not _reads(run.builder, run.project.root):
        return
    given = run.arguments.integer(key, least=1)
    if given:
        run.put("image_pixels", given, None, "the most that an image keeps")
    elif default is not None:
        run.builder.default("image_pixels", default, f"the most that an image keeps: default of {run.builder.upstream}")


def _reads(builder: JobBuilder, root: str) -> bool:
    """Whether the config's model is known to have a vision tower."""
    model = find_model(builder.job.model, builder.document.path, root)
    return model is not None and any(tensor.role == "vision" for tensor in model.tensors)
