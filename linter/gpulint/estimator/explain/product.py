"""Bytes as a product that a reader can redo, so that a figure and its derivation are one thing."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..estimate import Term

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Count = int | tuple[int, str]
"""A factor: a number, or a number and what it counts."""


class Product(NamedTuple):
    """`each` bytes, times every count, over `ranks` that share them; `label` says what they are, `source` whose."""

    label: str
    each: float
    counts: tuple[Count, ...] = ()
    ranks: int = 1
    source: str = ""

    @property
    def size(self) -> float:
        """Bytes, not rounded."""
        return self.each * prod(count if isinstance(count, int) else count[0] for count in self.counts) / self.ranks

    @property
    def formula(self) -> str:
        """`2 B x 8,192 tokens x 3 x 28,672 / 4 GPUs`."""
        pairs = [(count, "") if isinstance(count, int) else count for count in self.counts]
        factors = [f"{number:,} {_counted(noun, number)}".rstrip() for number, noun in pairs if noun or number != 1]
        return " x ".join((f"{self.each:,.12g} B", *factors)) + (f" / {self.ranks} GPUs" if self.ranks > 1 else "")


def _counted(noun: str, number: int) -> str:
    return noun.removesuffix("s") if number == 1 else noun


def total(products: Iterable[Product]) -> int:
    """Bytes of all of them, rounded once."""
    return round(sum(item.size for item in products))


def largest(*candidates: Sequence[Product]) -> Sequence[Product]:
    """The products that sum to most: what is alive at the widest instant."""
    return max(candidates, key=lambda products: sum(item.size for item in products))


def terms(component: str, products: Iterable[Product], source: str = "", whole: int | None = None) -> list[Term]:
    """A line for each product that is not empty, of its own source or of `source`.

    They sum to `whole`, else to the rounded total. What rounding leaves is the largest line's.
    """
    kept = [item for item in products if round(item.size)]
    sizes = [round(item.size) for item in kept]
    if kept:
        sizes[sizes.index(max(sizes))] += (total(kept) if whole is None else whole) - sum(sizes)
    lines = zip(kept, sizes, strict=True)
    return [Term(component, item.formula, size, item.source or source, item.label) for item, size in lines]


def matching(component: str, size: int, source: str, otherwise: str, *candidates: Sequence[Product]) -> list[Term]:
    """The lines of the first candidate that makes `size` bytes; else one line of that size, called `otherwise`.

    For what is the largest of several forms, where the estimate has kept which size won and not which form.
    """
    if not size:
        return []
    found = next((products for products in candidates if products and total(products) == size), None)
    return (
        [Term(component, f"{size:,} B", size, source, otherwise)] if found is None else terms(component, found, source)
    )
