"""The parameters of a rank, as the modules of its layers.

Some layers share weights: ALBERT's groups are one layer each, and hybrid layers of Zamba use the same blocks.
Source: transformers 5.23 modeling_albert.py `AlbertTransformer`, modeling_zamba2.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..adapters.modules import Modules
from ..estimate import NotEstimable

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..adapters.modules import ModuleOptions
    from ..states.parameter import Parameter
    from .state import ReplayState

SHARED, OWN = ".shared_transformer.", "_adapter_list."
"""What names of tensors say of Zamba 2's block and of the pairs that each of its uses has for itself."""


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """What is made into modules, and for which layers.

    stack   the name of the decoder's stack of layers, before the index;  layers  how many it has
    groups  groups of layers that are one and the same; 0 where each layer is its own
    hybrid  layers that use blocks with others, of which there are `blocks`
    """

    items: tuple[Parameter, ...]
    options: ModuleOptions
    stack: str
    layers: int
    groups: int = 0
    hybrid: tuple[int, ...] = ()
    blocks: int = 1

    @property
    def trainable(self) -> int:
        """Elements that gradients are made of."""
        return sum(item.elements for item in self.items if item.graded)

    def outside(self) -> Modules:
        """The modules outside every stack."""
        return self.of([item for item in self.items if item.layers is None and item.part != "buffer"])

    def layer(self, layer: int, state: ReplayState) -> Modules:
        """The modules of one decoder layer."""
        if self.groups:
            return self._group(layer, state)
        items = [item for item in self.items if self.holds(item, layer)]
        shared, last = self._block(layer)
        items += [item for item in shared if item not in items]
        return self.of(items, () if last else shared)

    def part(self, stack: str, layer: int) -> Modules:
        """The modules of a layer of another stack than the decoder's."""
        return self.of(
            [
                item
                for item in self.items
                if item.layers is not None
                and layer in item.layers
                and item.name.startswith(stack)
                and item.part != "buffer"
            ]
        )

    def encoders(self) -> Modules:
        """The modules of vision encoders and projectors outside their stacks."""
        return self.of([item for item in self.items if item.layers is None and item.role in ("vision", "projector")])

    def of(self, items: list[Parameter], summed: Collection[Parameter] = ()) -> Modules:
        """What parameters make up; `summed` as in Modules."""
        return Modules(items, self.options, summed)

    def holds(self, item: Parameter, layer: int) -> bool:
        """Whether a parameter is one of a decoder layer's."""
        own = item.layers is not None and item.part != "buffer" and layer in item.layers
        return own and item.name.startswith(self.stack)

    def sharing(self, layer: int) -> object:
        """What tells layers apart that share weights: the groups around one, or whether it is the last of a block."""
        if self.groups:
            return self._group_of(layer - 1), self._group_of(layer), self._group_of(layer + 1)
        return self._block(layer)[1]

    def _block(self, layer: int) -> tuple[list[Parameter], bool]:
        """The weights that hybrid layers of Zamba share, and whether the layer is the last that uses them.

        Its backward is the first to make their gradient, which the other layers add to.
        """
        if layer not in self.hybrid:
            return [], True
        shared = [item for item in self.items if item.part == "base" and SHARED in item.name and OWN not in item.name]
        number = self.hybrid.index(layer)
        if number >= self.blocks and any(self.holds(item, layer) for item in shared):
            return [], True
        first = self.hybrid[number % self.blocks]
        return [item for item in shared if self.holds(item, first)], number + self.blocks >= len(self.hybrid)

    def _group(self, layer: int, state: ReplayState) -> Modules:
        """The modules of a layer's group; the last layer of it makes the gradients, to which the others add.

        Autocast casts a weight once for all of them. Raises NotEstimable where another pipeline stage has the group.
        """
        group = self._group_of(layer)
        items = [item for item in self.items if self.holds(item, group)]
        if not items:
            raise NotEstimable("layers that are one and the same are not modelled over pipeline stages")
        found = self.of(items, () if self._group_of(layer + 1) != group else items)
        first = state.first_of_group.setdefault(group, found)
        if first is not found:
            found.cast_with(first)
        return found

    def _group_of(self, layer: int) -> int:
        return int(layer * self.groups / self.layers)
