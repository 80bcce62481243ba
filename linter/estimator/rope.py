"""Rotary position embeddings as the modelling code applies them to queries and keys.

`dim` features of each head are turned; cos and sin have `length` x `dim` elements and no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .ops import add, cat, mul, scale, split, sub, to, window

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tape import Tensor


class Table(NamedTuple):
    """cos and sin of all positions; `part` of `whole` features of a head are turned."""

    cos: Tensor
    sin: Tensor
    part: int
    whole: int


def half(x: Tensor, table: Table) -> Tensor:
    """x * cos + rotate_half(x) * sin (modeling_llama.py `apply_rotary_pos_emb`)."""
    return add(mul(x, table.cos), mul(_turned(x), table.sin))


def _turned(x: Tensor) -> Tensor:
    first, second = window(x, x.n // 2), window(x, x.n // 2)
    return cat((scale(second), first))


def half_cast(x: Tensor, table: Table) -> Tensor:
    """The same, back in x's width (OLMo)."""
    return to(half(x, table), x.e)


def half_wide(x: Tensor, table: Table) -> Tensor:
    """The same on a float32 copy, back in x's width (Cohere)."""
    wide = to(x, 4)
    return to(half(wide, table), x.e)


def partial(x: Tensor, table: Table) -> Tensor:
    """The first features are turned and joined with the rest (Phi, GPT-NeoX, StableLM, GLM)."""
    turned = x.n * table.part // table.whole
    first = window(x, turned) if table.part < table.whole else x
    rest = window(x, x.n - turned)
    return cat((half(first, table), rest))


def chunks(x: Tensor, table: Table) -> Tensor:
    """Both halves turned and joined (gpt-oss)."""
    first, second = split(x, (x.n // 2, x.n // 2))
    left = sub(mul(first, table.cos), mul(second, table.sin))
    right = add(mul(second, table.cos), mul(first, table.sin))
    return cat((left, right))


def pairs(x: Tensor, table: Table) -> Tensor:
    """Even and odd features turned and joined (DeepSeek-V3 `apply_rotary_pos_emb_interleave`)."""
    even, odd = window(x, x.n // 2), window(x, x.n // 2)
    return cat(
        (
            sub(mul(even, table.cos), mul(odd, table.sin)),
            add(mul(odd, table.cos), mul(even, table.sin)),
        )
    )


def complex_wide(x: Tensor, table: Table) -> Tensor:
    """A product of complex numbers in float32, back in x's width (DeepSeek-V2, Llama 4)."""
    wide = to(x, 4)
    return to(mul(wide, table.cos), x.e)


def none(x: Tensor, _table: Table) -> Tensor:
    """No rotary embedding."""
    return x


ROPES: dict[str, Callable[[Tensor, Table], Tensor]] = {
    "half": half,
    "half_cast": half_cast,
    "half_wide": half_wide,
    "partial": partial,
    "chunks": chunks,
    "pairs": pairs,
    "complex": complex_wide,
    "none": none,
}
