"""PROVISIONAL: the owner of this room replaces this file."""

from __future__ import annotations

from typing import NamedTuple

from ..job import Adapter, Job
from .model import Model


class AdaptedModule(NamedTuple):
    """A module with an adapter."""

    name: str
    in_features: int
    out_features: int
    rank: int
    copies: int
    layers: tuple[int, ...] | None
    role: str
    elements: int


def adapted(model: Model, adapter: Adapter) -> tuple[AdaptedModule, ...]:
    """LoRA modules."""
    targets = adapter.targets if adapter.targets is not None else ["q_proj", "v_proj"]
    found = []
    for t in model.tensors:
        if not t.linear or t.role == "head":
            continue
        if targets in ("all-linear", ["all-linear"]) or t.leaf in targets:
            out, inp = t.shape[-2], t.shape[-1]
            found.append(AdaptedModule(t.module, inp, out, adapter.r, t.copies, t.layers, t.role, t.copies * adapter.r * (inp + out)))
    return tuple(found)


def trainable_parameters(model: Model, job: Job) -> int:
    """Trainable elements."""
    if job.adapter is None:
        return model.parameters
    return sum(m.elements for m in adapted(model, job.adapter))
