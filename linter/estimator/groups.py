"""Layers that are one and the same: ALBERT's groups (transformers 5.23 modeling_albert.py `AlbertTransformer`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .modules import Modules
    from .setting import Setting


def around(s: Setting, layer: int) -> tuple[int, int, int]:
    """The groups of the layer before, of the layer and of the one behind it."""
    return _of(s, layer - 1), _of(s, layer), _of(s, layer + 1)


def shared_modules(s: Setting, layer: int) -> Modules:
    """The modules of a layer's group; the last layer of it makes the gradients, to which the others add.

    Autocast casts a weight once for all of them.
    """
    group = _of(s, layer)
    items = [item for item in s.items if s.holds(item, group)]
    found = s.modules_of(items, () if _of(s, layer + 1) != group else items)
    first = s.grouped.setdefault(group, found)
    if first is not found:
        found.cast_with(first)
    return found


def _of(s: Setting, layer: int) -> int:
    return int(layer * max(1, int(s.config.get("num_hidden_groups") or 1)) / s.layers)
