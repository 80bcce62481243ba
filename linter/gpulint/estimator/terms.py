"""Bytes as terms: a figure is the sum of its own, so that what is printed is what was computed."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Count = int | tuple[int, str]
"""A factor: a number, or a number and what it counts."""


class Arithmetic(Protocol):
    """What a reader can redo, written out when it is printed."""

    @property
    def formula(self) -> str:
        """`2 x 2 B x 201,510,912 elements`."""


class Product(NamedTuple):
    """`each` bytes, times every count, over `ranks` that share them; `label` says what they are, `source` whose.

    Not rounded: what is alive at once is added up first, and rounded to whole bytes as terms.
    """

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
        each = f"{self.each:,} B" if isinstance(self.each, int) else f"{self.each:,.12g} B"
        return " x ".join((each, *factors)) + (f" / {self.ranks} GPUs" if self.ranks > 1 else "")


class Term(NamedTuple):
    """Whole bytes of one thing, counted under a component or a tier.

    `factors` are arithmetic that a reader can redo, of a Product or written out ("0.92 x 85,520,809,984 B"); `source`
    says where the formula comes from, `label` what it counts where the factors do not say.
    """

    component: str
    factors: Arithmetic | str
    size: int
    source: str = ""
    label: str = ""

    @property
    def formula(self) -> str:
        """The factors as they are printed."""
        return self.factors if isinstance(self.factors, str) else self.factors.formula


def line(component: str, size: int, label: str, source: str = "") -> Term:
    """A term of so many bytes, without factors."""
    return Term(component, Product(label, size), size, source, label)


def tier(name: str, *lines: tuple[int, str]) -> tuple[Term, ...]:
    """A term for each (bytes, label) that is not 0."""
    return tuple(line(name, size, label) for size, label in lines if size)


def at_least(name: str, found: Iterable[Term], size: int, label: str) -> tuple[Term, ...]:
    """Terms of a tier that sum to no less than `size`."""
    found = tuple(found)
    return (*found, *tier(name, (max(0, size - total(found)), label)))


def at_most(name: str, found: Iterable[Term], size: int, label: str) -> tuple[Term, ...]:
    """Terms of a tier that sum to no more than `size`."""
    found = tuple(found)
    return (*found, *tier(name, (min(0, size - total(found)), label)))


def less(component: str, found: Iterable[Term]) -> list[Term]:
    """What is taken off a figure: the terms with their bytes negative."""
    return [
        term._replace(component=component, factors=_negative(term.factors), size=-term.size)
        for term in found
        if term.size
    ]


def total(items: Iterable[Product | Term]) -> int:
    """Bytes of all of them, rounded once."""
    return round(sum(item.size for item in items))


def largest(*candidates: Sequence[Product]) -> Sequence[Product]:
    """The products that sum to most: what is alive at the widest instant."""
    return max(candidates, key=lambda products: sum(item.size for item in products))


def terms(component: str, products: Iterable[Product], source: str = "", whole: int | None = None) -> list[Term]:
    """A term for each product that is not empty, of its own source or of `source`.

    They sum to the rounded total, or to the `whole` where that is rounded part by part: what rounding leaves is the
    largest one's.
    """
    kept = [item for item in products if round(item.size)]
    sizes = [round(item.size) for item in kept]
    if kept:
        sizes[sizes.index(max(sizes))] += (total(kept) if whole is None else whole) - sum(sizes)
    made = zip(kept, sizes, strict=True)
    return [Term(component, item, size, item.source or source, item.label) for item, size in made]


def of(component: str, found: Iterable[Term]) -> int:
    """Bytes of the terms of one component."""
    return sum(term.size for term in found if term.component == component)


def _negative(factors: Arithmetic | str) -> Arithmetic | str:
    if isinstance(factors, Product):
        return factors._replace(each=-factors.each)
    return f"-{factors if isinstance(factors, str) else factors.formula}"


def _counted(noun: str, number: int) -> str:
    return noun.removesuffix("s") if number == 1 else noun
