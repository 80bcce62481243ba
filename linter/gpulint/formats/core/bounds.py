"""The numbers that a key takes, where upstream checks them when it starts (`bounds.json`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from .coercion import as_number

if TYPE_CHECKING:
    from ...source.node import Node


class Bounds(NamedTuple):
    """`least` and `most` are taken, `above` is not; `only` are numbers that are taken besides."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    only: tuple[float, ...] = ()

    def holds(self, number: float) -> bool:
        """Whether the number is taken; infinity and what is no number are not."""
        if number in self.only:
            return True
        low = (self.least is None or number >= self.least) and (self.above is None or number > self.above)
        return low and number < float("inf") and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        parts = [
            *([f"from {self.least:g}"] if self.least is not None else []),
            *([f"above {self.above:g}"] if self.above is not None else []),
            *([f"up to {self.most:g}"] if self.most is not None else []),
        ]
        return f"a number {' '.join(parts)}" + "".join(f", or {number:g}" for number in self.only)


def out_of_bounds(schema: str, dotted: str, node: Node) -> dict[str, str] | None:
    """What is wrong with a number that upstream refuses for its key; None where nothing is known to be."""
    bounds = _table().get(schema, {}).get(dotted.replace("-", "_"))
    if bounds is None or isinstance(node.value, bool):
        return None
    number = as_number(node.value)
    if number is None or bounds.holds(number):
        return None
    return {"expected": str(bounds), "found": node.raw or str(node.value)}


@cache
def _table() -> dict[str, dict[str, Bounds]]:
    """Schema -> key -> its bounds."""
    found: dict[str, dict[str, Bounds]] = {}
    rows: dict[str, list[dict[str, Any]]] = read_table(__file__, "bounds.json")["bounds"]
    for schema, groups in rows.items():
        for row in groups:
            only = tuple(row.get("only", ()))
            bounds = Bounds(row.get("least"), row.get("above"), row.get("most"), only)
            found.setdefault(schema, {}).update(dict.fromkeys(row["keys"], bounds))
    return found
