"""A module that an adapter adds weights to."""

from __future__ import annotations

from typing import NamedTuple


class AdaptedModule(NamedTuple):
    """A module with an adapter, once for every layer that has it.

    name       the module's dotted name, `{0}` for the layer index; for experts the parameter's
    rank       rows of lora_A of one copy, after `rank_pattern` and the fusion of expert projections
    outer_rank columns of its lora_B, which differ where projections of a fused parameter are adapted one by one
    copies     how many layers have it; `layers` which, None outside a stack
    elements   trainable elements of all copies
    """

    name: str
    in_features: int
    out_features: int
    rank: int
    outer_rank: int
    copies: int
    layers: tuple[int, ...] | None
    role: str
    elements: int
