"""Rule expressions: a small tree of operations over facts, evaluated in three-valued logic.

A tree is plain JSON (`["and", ["fact", "weights.quantized"], ...]`), so that `rules/index.json` carries
compiled rules and no parser runs at start. `syntax.parse` makes trees from text.

A fact that cannot be derived is UNKNOWN. Comparisons and arithmetic with UNKNOWN, with null or between
kinds that do not compare are UNKNOWN; `and`, `or` and `not` follow Kleene: `false and UNKNOWN` is false. A
rule fires only on a result that is known and true.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Tree = list[Any]

MAX_DIVIDED = 4096
"""The largest number whose divisors are listed: a count of heads, layers, ranks or experts."""

MAX_BITS = 1023
"""Bits of an integer that a float can hold."""


class Unknown:
    """The type of UNKNOWN, the value of a fact that cannot be derived."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("UNKNOWN is neither true nor false")


UNKNOWN = Unknown()


class FactSource(Protocol):
    """What an expression is evaluated against."""

    def get(self, path: str) -> Any:
        """The value of a fact, UNKNOWN where it cannot be derived."""

    def has(self, path: str) -> Any:
        """Whether a key (`config.` path) is written in the file; UNKNOWN where the start may add it."""

    def peak_if(self, changes: dict[str, Any]) -> Any:
        """The bytes one GPU would need with Job fields changed, UNKNOWN where not estimable."""


def evaluate(tree: Tree, facts: FactSource) -> Any:
    """The value of a tree; UNKNOWN where it rests on something that is not known."""
    return _OPERATIONS[tree[0]](tree, facts)


def fires(tree: Tree, facts: FactSource) -> bool:
    """Whether a condition is known and true."""
    value = evaluate(tree, facts)
    return value is not UNKNOWN and bool(value)


def facts_of(tree: Tree) -> set[str]:
    """Every fact path that a tree names, `has` included."""
    found: set[str] = set()
    stack: list[Any] = [tree]
    while stack:
        part = stack.pop()
        if part and part[0] in ("fact", "has"):
            found.add(part[1])
        elif part and part[0] == "peak_if":
            found.add("estimate.peak")
        elif part and part[0] != "const":
            stack.extend(item for item in part if isinstance(item, list))
    return found


def is_number(value: Any) -> bool:
    """Whether a value takes part in arithmetic: an int within a float's range or a finite float, not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else value.bit_length() <= MAX_BITS


def _fact(tree: Tree, facts: FactSource) -> Any:
    return facts.get(tree[1])


def _has(tree: Tree, facts: FactSource) -> Any:
    return facts.has(tree[1])


def _const(tree: Tree, _facts: FactSource) -> Any:
    return tree[1]


def _and(tree: Tree, facts: FactSource) -> Any:
    result: Any = True
    for part in tree[1:]:
        value = evaluate(part, facts)
        if value is UNKNOWN:
            result = UNKNOWN
        elif not value:
            return False
    return result


def _or(tree: Tree, facts: FactSource) -> Any:
    result: Any = False
    for part in tree[1:]:
        value = evaluate(part, facts)
        if value is UNKNOWN:
            result = UNKNOWN
        elif value:
            return True
    return result


def _not(tree: Tree, facts: FactSource) -> Any:
    value = evaluate(tree[1], facts)
    return UNKNOWN if value is UNKNOWN else not value


def _conditional(tree: Tree, facts: FactSource) -> Any:
    test = evaluate(tree[1], facts)
    if test is UNKNOWN:
        return UNKNOWN
    return evaluate(tree[2] if test else tree[3], facts)


def _negate(tree: Tree, facts: FactSource) -> Any:
    value = evaluate(tree[1], facts)
    return -value if is_number(value) else UNKNOWN


def _arithmetic(tree: Tree, facts: FactSource) -> Any:
    left, right = evaluate(tree[1], facts), evaluate(tree[2], facts)
    if not (is_number(left) and is_number(right)) or (tree[0] in "//%" and right == 0):
        return UNKNOWN
    try:
        return _ARITHMETIC[tree[0]](left, right)
    except OverflowError:
        return UNKNOWN


def _equality(tree: Tree, facts: FactSource) -> Any:
    left, right = evaluate(tree[1], facts), evaluate(tree[2], facts)
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    return _same(left, right) == (tree[0] == "==")


def _order(tree: Tree, facts: FactSource) -> Any:
    left, right = evaluate(tree[1], facts), evaluate(tree[2], facts)
    if not (is_number(left) and is_number(right)):
        return UNKNOWN
    return _ORDER[tree[0]](left, right)


def _membership(tree: Tree, facts: FactSource) -> Any:
    item, container = evaluate(tree[1], facts), evaluate(tree[2], facts)
    if item is UNKNOWN or container is UNKNOWN:
        return UNKNOWN
    if isinstance(container, str):
        found = item in container if isinstance(item, str) else UNKNOWN
    elif isinstance(container, list | tuple | dict):
        found = any(_same(item, other) for other in container)
    else:
        return UNKNOWN
    return found if found is UNKNOWN else found == (tree[0] == "in")


def _chain(tree: Tree, facts: FactSource) -> Any:
    """`a < b < c`, already split into pairs by the parser."""
    return _and(tree, facts)


def _list(tree: Tree, facts: FactSource) -> Any:
    values = [evaluate(part, facts) for part in tree[1:]]
    return UNKNOWN if any(value is UNKNOWN for value in values) else values


def _call(tree: Tree, facts: FactSource) -> Any:
    values = [evaluate(part, facts) for part in tree[2:]]
    if tree[1] == "known":
        return values[0] is not UNKNOWN and values[0] is not None
    if tree[1] == "default":
        return values[1] if values[0] is UNKNOWN or values[0] is None else values[0]
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    return FUNCTIONS[tree[1]](*values)


def _peak_if(tree: Tree, facts: FactSource) -> Any:
    return facts.peak_if(dict(zip(tree[1::2], tree[2::2], strict=True)))


def _same(left: Any, right: Any) -> bool:
    """Equality in which a bool equals no number."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _extreme(choose: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    def of(*values: Any) -> Any:
        items = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        return choose(items) if items and all(is_number(item) for item in items) else UNKNOWN

    return of


def _rounding(way: Callable[[float], int]) -> Callable[..., Any]:
    return lambda value: way(value) if is_number(value) else UNKNOWN


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, str | list | tuple | dict) else UNKNOWN


def _divisors(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_DIVIDED:
        return UNKNOWN
    return [number for number in range(1, value + 1) if value % number == 0]


def _next_of(sizes: Any, value: Any) -> Any:
    """The smallest of some sizes that is not below a number: the slot that takes an adapter of that rank."""
    if not isinstance(sizes, list | tuple) or not is_number(value) or not all(is_number(size) for size in sizes):
        return UNKNOWN
    return min((size for size in sizes if size >= value), default=UNKNOWN)


def _any_of(values: Any, wanted: Any) -> Any:
    if values is None:
        return False
    items = values if isinstance(values, list | tuple) else [values]
    return any(_same(item, other) for item in items for other in wanted)


def _number(value: Any) -> Any:
    """A number, also from the string that PyYAML makes of `2e-4`."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return UNKNOWN
    return value if is_number(value) else UNKNOWN


def _parts(value: Any) -> Any:
    """The items of a list, or of text with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value if isinstance(value, list | tuple) else UNKNOWN


def _words(value: Any) -> Any:
    """The items of a list, or of text with blanks between; a number is one item."""
    if isinstance(value, str):
        return value.split()
    return [value] if is_number(value) else value if isinstance(value, list | tuple) else UNKNOWN


def _distinct(value: Any) -> Any:
    """The items of a list, or of text with commas, each once."""
    items = _parts(value)
    return items if items is UNKNOWN else [item for at, item in enumerate(items) if item not in items[:at]]


def _text(method: str) -> Callable[..., Any]:
    def of(value: Any, *rest: Any) -> Any:
        if not isinstance(value, str) or not all(isinstance(item, str) for item in rest):
            return UNKNOWN
        return getattr(value, method)(*rest)

    return of


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme(min),
    "max": _extreme(max),
    "ceil": _rounding(math.ceil),
    "floor": _rounding(math.floor),
    "len": _length,
    "any_of": _any_of,
    "number": _number,
    "lower": _text("lower"),
    "starts_with": _text("startswith"),
    "ends_with": _text("endswith"),
    "divisors": _divisors,
    "next_of": _next_of,
    "parts": _parts,
    "words": _words,
    "distinct": _distinct,
}
"""Functions of values. `known`, `default`, `has` and `peak_if` are handled apart: they accept what is unknown."""

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPERATIONS: dict[str, Callable[[Tree, FactSource], Any]] = {
    "fact": _fact,
    "has": _has,
    "const": _const,
    "and": _and,
    "or": _or,
    "not": _not,
    "if": _conditional,
    "neg": _negate,
    "==": _equality,
    "!=": _equality,
    "in": _membership,
    "not in": _membership,
    "chain": _chain,
    "list": _list,
    "call": _call,
    "peak_if": _peak_if,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_ORDER, _order),
}
