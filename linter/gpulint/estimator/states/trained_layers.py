"""What tells layers apart by what they train."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..layers.setting import Setting


def first_trained(s: Setting) -> int:
    """The first layer that trains something; -1 where the layers' inputs want a gradient before it."""
    if s.leaf_inputs or any(item.graded and item.role in ("embedding", "position") for item in s.items):
        return -1
    mine = (item for item in s.items if item.graded and item.name.startswith(s.prefix))
    return min((layer for item in mine for layer in item.layers or ()), default=s.layers)


def signatures(s: Setting) -> dict[int, int]:
    """By layer, a bit for each parameter that some layers have and others lack."""
    found: dict[int, int] = {}
    for number, item in enumerate(s.items):
        if item.layers is None or len(item.layers) >= s.layers or not item.name.startswith(s.prefix):
            continue
        for layer in item.layers:
            found[layer] = found.get(layer, 0) | 1 << number
    return found
