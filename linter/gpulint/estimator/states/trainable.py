"""Which base parameters a job trains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...models.llama_adapter import trains
from ...models.lora_targets import NotAdaptable, expression

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model, Tensor


def trainable_layers(tensor: Tensor, layers: tuple[int, ...] | None, job: Job, model: Model) -> tuple[int, ...] | None:
    """The layers in which a base tensor is trained; () outside a stack when it is, None when it is not at all.

    Without patterns everything is trained but for a job with an adapter, some of which train norms. `trainable`
    patterns are regular expressions searched in the parameter's full name.
    """
    if tensor.frozen:
        return None
    if job.adapter is not None and trains(tensor, model, job.adapter.type):
        return layers or ()
    if job.trainable is None:
        return (layers or ()) if job.adapter is None and job.method != "lora" else None
    patterns = [_compiled(pattern) for pattern in job.trainable]
    if layers is None:
        return () if any(pattern.search(tensor.name) for pattern in patterns) else None
    names = {layer: tensor.name.replace("{0}", str(layer)) for layer in layers}
    chosen = tuple(layer for layer, name in names.items() if any(pattern.search(name) for pattern in patterns))
    return chosen or None


def _compiled(pattern: str) -> re.Pattern[str]:
    """Literal text where it is no regular expression, or a costly one."""
    try:
        return expression(pattern)
    except NotAdaptable:
        return re.compile(re.escape(pattern))
