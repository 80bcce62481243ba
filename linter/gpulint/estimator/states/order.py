"""The order of a model's parameters: layer by layer, where they are known once for all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .parameter import Parameter


def stacks(found: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Neighbours that lie in layers together, and every other parameter alone."""
    stack: list[Parameter] = []
    for item in found:
        if stack and (item.layers is None or stack[0].layers is None):
            yield stack
            stack = []
        stack.append(item)
    if stack:
        yield stack


def in_order(found: Iterable[Parameter]) -> Iterator[Parameter]:
    """Each parameter with the copies of one layer, as `model.parameters()` has them."""
    for stack in stacks(found):
        if stack[0].layers is None:
            yield from stack
            continue
        for layer in sorted({index for item in stack for index in item.layers or ()}):
            for item in stack:
                layers = item.layers or ()
                if layer in layers:
                    yield item._replace(copies=item.copies // len(layers))
