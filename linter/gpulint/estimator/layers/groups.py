"""Layers that share weights: ALBERT's groups, which are one layer each, and the blocks of Zamba's hybrid layers.

Source: transformers 5.23 modeling_albert.py `AlbertTransformer`, modeling_zamba2.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ..estimate import NotEstimable

if TYPE_CHECKING:
    from ...models.model import Model
    from ..adapters.modules import Modules
    from ..states.parameters import Parameter
    from .setting import Setting


SHARED, OWN = ".shared_transformer.", "_adapter_list."
"""What names of tensors say of Zamba 2's block and of the pairs that each of its uses has for itself."""


def block(s: Setting, layer: int | None) -> tuple[list[Parameter], bool]:
    """The weights that hybrid layers of Zamba share, and whether the layer is the last that uses them.

    Its backward is the first to make their gradient, which the other layers add to.
    """
    if layer is None or s.order != "zamba" or s.layer_types[layer] != "hybrid":
        return [], True
    hybrid = [i for i, kind in enumerate(s.layer_types) if kind == "hybrid"]
    blocks = max(1, int(s.config.get("num_mem_blocks") or 1))
    shared = [item for item in s.items if item.part == "base" and SHARED in item.name and OWN not in item.name]
    number = hybrid.index(layer)
    if number >= blocks and any(s.holds(item, layer) for item in shared):
        return [], True
    return [item for item in shared if s.holds(item, hybrid[number % blocks])], number + blocks >= len(hybrid)


def around(s: Setting, layer: int) -> tuple[int, int, int]:
    """The groups of the layer before, of the layer and of the one behind it."""
    return _of(s, layer - 1), _of(s, layer), _of(s, layer + 1)


def shared_modules(s: Setting, layer: int) -> Modules:
    """The modules of a layer's group; the last layer of it makes the gradients, to which the others add.

    Autocast casts a weight once for all of them. Raises NotEstimable where another pipeline stage has the group.
    """
    group = _of(s, layer)
    items = [item for item in s.items if s.holds(item, group)]
    if not items:
        raise NotEstimable("layers that are one and the same are not modelled over pipeline stages")
    found = s.modules_of(items, () if _of(s, layer + 1) != group else items)
    first = s.grouped.setdefault(group, found)
    if first is not found:
        found.cast_with(first)
    return found


def reused(model: Model) -> bool:
    """Whether layers of a group are one and the same."""
    return arch_spec(model.model_type, text_config(model.config), model.shape.norm).reused


def _of(s: Setting, layer: int) -> int:
    return int(layer * max(1, int(s.config.get("num_hidden_groups") or 1)) / s.layers)
