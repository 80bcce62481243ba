"""Samples of sound: how many frames they become, and what a model that reads them is trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..estimate import NotEstimable

if TYPE_CHECKING:
    from ...models.model import Model
    from .objectives import Objective

KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
"""The classes' defaults of `conv_kernel` and `conv_stride`."""


def frames(config: dict[str, Any], samples: int) -> list[int]:
    """Positions behind each convolution: (n - kernel) / stride + 1, one after the other, at least one."""
    found: list[int] = []
    kernels, strides = config.get("conv_kernel") or KERNELS, config.get("conv_stride") or STRIDES
    for kernel, stride in zip(kernels, strides, strict=False):
        samples = max(1, (samples - int(kernel)) // int(stride) + 1)
        found.append(samples)
    return found


def spoken(found: Objective, model: Model) -> Objective:
    """The objective of a model that reads samples: its alignment with a text, whatever is trained on words.

    Raises NotEstimable where something else stands behind the layers.
    """
    if found.loss not in ("cross_entropy", "ctc"):
        raise NotEstimable(f"what {model.model_type} has behind its layers is read for the ctc objective alone")
    return found._replace(loss="ctc")
