"""The part of a model that one pipeline stage runs, as a model of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .division import stages

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model, Shape, Tensor

INDICES = ("sparse_layers", "indexer_layers", "cross_layers")
"""Shape fields that list layer indices."""


def last_stage(job: Job, model: Model) -> tuple[Job, Model]:
    """The job and the model as the last of the job's pipeline stages sees them; unchanged without pipelining.

    Its ceil(L/p) layers are numbered from 0, and what lies outside the layers stays. One micro batch is in flight on
    the last stage (1F1B schedule: p - i on stage i, Megatron-LM core/pipeline_parallel/schedules.py), but it has the
    logits.
    """
    count = stages(job)
    if count <= 1:
        return job, model
    shape = model.shape
    first = shape.layers - -(-shape.layers // count)
    tensors = [_renumbered(tensor, first) for tensor in model.tensors]
    small = model._replace(tensors=tuple(item for item in tensors if item is not None), shape=_cut(shape, first))
    parallelism = replace(job.parallelism, pipeline=1, device_map=None, data=job.data_parallel)
    return replace(job, parallelism=parallelism), small


def _renumbered(tensor: Tensor, first: int) -> Tensor | None:
    if tensor.layers is None:
        return tensor
    layers = tuple(layer - first for layer in tensor.layers if layer >= first)
    return tensor._replace(layers=layers) if layers else None


def _cut(shape: Shape, first: int) -> Shape:
    changes: dict[str, object] = {"layers": shape.layers - first}
    for name, value in shape._asdict().items():
        if name in INDICES:
            changes[name] = tuple(index - first for index in value if index >= first)
        elif isinstance(value, tuple) and len(value) == shape.layers:
            changes[name] = value[first:]
    return shape._replace(**changes)  # type: ignore[arg-type]
