"""Rotary position embeddings as the modelling code applies them to queries and keys.

`part` of a head's features are rotated; cos and sin have length x part elements and no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...tape.indexing import cat, split, window
from ...tape.ops import add, contiguous, mul, scale, sub, to
from ...tape.tape import tape_of
from ...tape.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    Rope = Callable[[Tensor, Tensor, "Table"], tuple[Tensor, Tensor]]
    Named = tuple[Tensor, Tensor, tuple[Tensor, ...]]

PART = "rotary embedding"


class Table(NamedTuple):
    """cos and sin of all positions; `part` of `whole` features of a head are rotated; `rows` tokens of the batch."""

    cos: Tensor
    sin: Tensor
    part: int
    whole: int
    rows: int = 0


def _each(turn: Callable[[Tensor, Table], Tensor]) -> Rope:
    def both(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
        return turn(q, table), turn(k, table)

    return both


def _half(x: Tensor, table: Table) -> Tensor:
    return add(mul(x, table.cos), mul(_swapped_halves(x), table.sin))


def rotated(x: Tensor, table: Table) -> Tensor:
    """One operand, all of it, in halves."""
    return _half(x, table)


def _swapped_halves(x: Tensor) -> Tensor:
    first, second = window(x, x.n // 2), window(x, x.n // 2)
    return cat((scale(second), first))


def _half_cast(x: Tensor, table: Table) -> Tensor:
    return to(_half(x, table), x.e)


def half_fresh(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """All features, with cos and sin laid out anew in every layer (Helium)."""
    table = _fresh(table)
    return _half(q, table), _half(k, table)


def half_wide(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """On float32 copies, back in the operands' width (Cohere)."""
    wide_q, wide_k = to(q, 4), to(k, 4)
    turned = _half(wide_q, table), _half(wide_k, table)
    return to(turned[0], q.e), to(turned[1], k.e)


def half_upcast(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """On float32 copies made for each term, back in the operands' width (ModernBERT)."""
    first, second = _upcast(q, table), _upcast(k, table)
    return to(first, q.e), to(second, k.e)


def _upcast(x: Tensor, table: Table) -> Tensor:
    return add(mul(to(x, 4), table.cos), mul(_swapped_halves(to(x, 4)), table.sin))


def half_wide_late(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Products of float32 copies made for each term, cos and sin laid out anew in every layer (ERNIE 4.5)."""
    table = _fresh(table)
    turned = _late(q, table), _late(k, table)
    return to(turned[0], q.e), to(turned[1], k.e)


def _late(x: Tensor, table: Table) -> Tensor:
    return add(mul(to(x, 4), table.cos), mul(to(_swapped_halves(x), 4), table.sin))


def partial(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """The first features of both are rotated, then joined with the rest (GPT-NeoX, GLM)."""
    first_q, rest_q = _parted(q, table)
    first_k, rest_k = _parted(k, table)
    first_q, first_k = _half(first_q, table), _half(first_k, table)
    joined = _joined(first_q, rest_q)
    del first_q
    return joined, _joined(first_k, rest_k)


def partial_fresh(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """The same with cos and sin laid out anew in every layer (GLM)."""
    return partial(q, k, _fresh(table))


def _fresh(table: Table) -> Table:
    return table._replace(cos=contiguous(table.cos), sin=contiguous(table.sin))


def partial_each(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """The first features are rotated and joined with the rest, one operand after the other (Phi-3)."""
    first_q, rest_q = _parted(q, table)
    first_k, rest_k = _parted(k, table)
    return _joined(_half(first_q, table), rest_q), _joined(_half(first_k, table), rest_k)


def partial_named(q: Tensor, k: Tensor, table: Table) -> Named:
    """The same where the layer has names for the parts (Phi, StableLM, Persimmon)."""
    first_q, rest_q = _parted(q, table)
    first_k, rest_k = _parted(k, table)
    first_q, first_k = _half(first_q, table), _half(first_k, table)
    return _joined(first_q, rest_q), _joined(first_k, rest_k), (first_q, rest_q, first_k, rest_k)


def partial_gptj(q: Tensor, k: Tensor, table: Table) -> Named:
    """Keys before queries, on [b, s, heads, d], with names for the parts (GPT-J)."""
    first_k, rest_k = _parted(k, table)
    first_q, rest_q = _parted(q, table)
    first_k = _half(first_k, _fresh(table))
    first_q = _half(first_q, _fresh(table))
    keys = cat((first_k, rest_k))
    return cat((first_q, rest_q)), keys, (first_q, rest_q, first_k, rest_k)


def _parted(x: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    turned = x.n * table.part // table.whole
    return (window(x, turned) if table.part < table.whole else x), window(x, x.n - turned)


def _joined(first: Tensor, rest: Tensor) -> Tensor:
    y = cat((first, rest))
    y.heads_first = True
    return y


def _chunks(x: Tensor, table: Table) -> Tensor:
    first, second = split(x, (x.n // 2, x.n // 2))
    left = sub(mul(first, table.cos), mul(second, table.sin))
    right = add(mul(second, table.cos), mul(first, table.sin))
    return _joined(left, right)


def stacked(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """torchtune: even and odd features in float32, joined, back in the operand's width.

    The float32 table is looked up for every token and operand (torchtune/modules/position_embeddings.py).
    """
    return _looked_up(q, table), _looked_up(k, table)


def _looked_up(x: Tensor, table: Table) -> Tensor:
    tape = tape_of(x)
    half = table.rows * table.part // 2
    cache = tape.new(2 * half, 4)
    cos = Tensor(cache.storage, half, 4)
    wide = to(x, 4)
    even, odd = window(wide, x.n // 2), window(wide, x.n // 2)
    left = sub(mul(even, cos), mul(odd, cos))
    y = cat((left, add(mul(odd, cos), mul(even, cos))))
    del wide, even, odd, left
    return to(y, x.e)


def pairs(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Even and odd features rotated and joined (DeepSeek-V3 `apply_rotary_pos_emb_interleave`)."""
    even_q, odd_q = window(q, q.n // 2), window(q, q.n // 2)
    even_k, odd_k = window(k, k.n // 2), window(k, k.n // 2)
    return _pair(even_q, odd_q, table), _pair(even_k, odd_k, table)


def _pair(even: Tensor, odd: Tensor, table: Table) -> Tensor:
    return _joined(sub(mul(even, table.cos), mul(odd, table.sin)), add(mul(odd, table.cos), mul(even, table.sin)))


def complex_wide(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Products of complex numbers in float32, back in the operands' width (DeepSeek-V2, Llama 4)."""
    wide_q, wide_k = to(q, 4), to(k, 4)
    turned_q, turned_k = mul(wide_q, table.cos), mul(wide_k, table.cos)
    return to(turned_q, q.e), to(turned_k, k.e)


def none(q: Tensor, k: Tensor, _table: Table) -> tuple[Tensor, Tensor]:
    """No rotary embedding."""
    return q, k


NAMED = {"partial_named": partial_named, "partial_gptj": partial_gptj}
"""Those of classes whose attention has names for the rotated and the other features until it returns."""

ROPES: dict[str, Rope] = {
    "half": _each(_half),
    "half_fresh": half_fresh,
    "half_cast": _each(_half_cast),
    "half_wide": half_wide,
    "half_wide_late": half_wide_late,
    "half_upcast": half_upcast,
    "partial": partial,
    "partial_fresh": partial_fresh,
    "partial_each": partial_each,
    "chunks": _each(_chunks),
    "stacked": stacked,
    "pairs": pairs,
    "complex": complex_wide,
    "none": none,
}
