"""Expressions of the architecture tables: arithmetic and conditions over `config.json` fields.

`hidden_size//num_attention_heads`, `i not in mlp_only_layers and (i+1)%decoder_sparse_step==0`,
`text_config.layer_types[i]=='full_attention'`. An expression is parsed once and turned into nested closures; no
code object is ever compiled, and only the syntax listed here is accepted.

Names are config fields, dotted for nested ones; `i` is the layer index and `L` the number of layers of its stack.
A comparison with a missing field (None) is False, indexing past the end gives None, arithmetic on anything but
numbers raises. `at(field, k)` reads a field that is a list or one number for all; `ints(field)` a list that may be
written as text; `count(field)` is the length of a list, 1 for a single value; `nth(field, value, k)` is the index of
the k-th entry that is `value`.
"""

from __future__ import annotations

import ast
import operator
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    Get = Callable[[str], Any]
    Closure = Callable[[Get, int | None, int | None], Any]

MAX_LENGTH = 1000
"""Characters of an expression; the longest in the tables has about 300."""

MAX_NUMBER = 1 << 62
"""Numbers beyond this are refused: no tensor has so many elements, and config values are untrusted."""


class ExpressionError(ValueError):
    """An expression that is not allowed, or that cannot be evaluated on these fields."""


class Expression(NamedTuple):
    """A compiled expression. `indexed` is True where the value depends on the layer."""

    text: str
    evaluate: Closure
    names: frozenset[str]
    indexed: bool

    def __call__(self, get: Get, i: int | None = None, length: int | None = None) -> Any:
        """The value with fields read through `get`, at layer `i` of `length`.

        Raises ExpressionError where the fields do not allow one.
        """
        try:
            return self.evaluate(get, i, length)
        except (TypeError, ArithmeticError, ValueError, LookupError) as error:
            raise ExpressionError(f"{self.text}: {error}") from None


_compiled: dict[str, Expression] = {}


def compile_expression(text: str) -> Expression:
    """The compiled form of `text`, the same object for the same text.

    Raises ExpressionError for syntax outside the whitelist.
    """
    found = _compiled.get(text)
    if found is None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"an expression of {len(text)} characters")
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{text}: {error}") from None
        names: set[str] = set()
        closure = _closure(tree, names)
        indexed = "i" in names or "L" in names
        found = Expression(text, closure, frozenset(names - {"i", "L"}), indexed)
        _compiled[text] = found
    return found


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise TypeError(f"{value!r} is not a usable number")
    return value


def _ceildiv(numerator: int, denominator: int) -> int:
    return int(-(-_number(numerator) // _number(denominator)))


def _roundup(value: float, multiple: int) -> int:
    return int(_number(multiple) * -(-int(_number(value)) // multiple))


def _ints(value: Any) -> list[int]:
    """A list of whole numbers, also from remote-code spellings such as "3,4,5"."""
    items = value.split(",") if isinstance(value, str) else value
    return [int(item) for item in items if str(item).strip()]


def _nth(values: list[Any], wanted: Any, k: int) -> int | None:
    """The index of the k-th entry that is `wanted`, of the last where there are fewer; None without any."""
    found = [index for index, value in enumerate(values) if value == wanted]
    return found[min(k, len(found) - 1)] if found else None


def _contains(item: Any, container: Any) -> bool:
    return container is not None and item in container


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def guarded(left: Any, right: Any) -> bool:
        return left is not None and right is not None and compare(left, right)

    return guarded


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceildiv": _ceildiv,
    "roundup": _roundup,
    "isqrt": isqrt,
    "int": lambda value: int(_number(value)),
    "len": len,
    "at": lambda value, index: value[index] if isinstance(value, list) else value,
    "count": lambda value: len(value) if isinstance(value, list) else 1,
    "ints": _ints,
    "nth": _nth,
    "min": min,
    "max": max,
    "round": lambda value: round(_number(value)),
}


def _closure(node: ast.expr, names: set[str]) -> Closure:
    if isinstance(node, ast.Constant):
        return _constant(node)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _name(node, names)
    build = _BUILDERS.get(type(node))
    if build is None:
        raise ExpressionError(f"{type(node).__name__} is not allowed in an expression")
    return build(node, names)


def _constant(node: ast.Constant) -> Closure:
    value = node.value
    if value is not None and not isinstance(value, (int, float, str)):
        raise ExpressionError(f"the constant {value!r} is not allowed in an expression")
    return lambda _get, _i, _length: value


def _name(node: ast.Name | ast.Attribute, names: set[str]) -> Closure:
    name = _dotted(node)
    names.add(name)
    if name == "i":
        return lambda _get, i, _length: i
    if name == "L":
        return lambda _get, _i, length: length
    return lambda get, _i, _length: get(name)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    raise ExpressionError("only fields have a dotted name in an expression")


def _binary(node: ast.BinOp, names: set[str]) -> Closure:
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise ExpressionError(f"{type(node.op).__name__} is not allowed in an expression")
    left, right = _closure(node.left, names), _closure(node.right, names)

    def binary(get: Get, i: int | None, length: int | None) -> Any:
        return apply(_number(left(get, i, length)), _number(right(get, i, length)))

    return binary


def _unary(node: ast.UnaryOp, names: set[str]) -> Closure:
    operand = _closure(node.operand, names)
    if isinstance(node.op, ast.Not):
        return lambda get, i, length: not operand(get, i, length)
    if isinstance(node.op, ast.USub):
        return lambda get, i, length: -_number(operand(get, i, length))
    raise ExpressionError(f"{type(node.op).__name__} is not allowed in an expression")


def _boolean(node: ast.BoolOp, names: set[str]) -> Closure:
    parts = [_closure(value, names) for value in node.values]
    stops = isinstance(node.op, ast.Or)

    def boolean(get: Get, i: int | None, length: int | None) -> Any:
        value = None
        for part in parts:
            value = part(get, i, length)
            if bool(value) is stops:
                return value
        return value

    return boolean


def _compare(node: ast.Compare, names: set[str]) -> Closure:
    first = _closure(node.left, names)
    rest = []
    for op, right in zip(node.ops, node.comparators, strict=True):
        rest.append((_COMPARISONS[type(op)], _closure(right, names)))

    def compare(get: Get, i: int | None, length: int | None) -> bool:
        left = first(get, i, length)
        for test, part in rest:
            right = part(get, i, length)
            if not test(left, right):
                return False
            left = right
        return True

    return compare


def _choice(node: ast.IfExp, names: set[str]) -> Closure:
    test, body, other = (_closure(part, names) for part in (node.test, node.body, node.orelse))
    return lambda get, i, length: body(get, i, length) if test(get, i, length) else other(get, i, length)


def _subscript(node: ast.Subscript, names: set[str]) -> Closure:
    value, index = _closure(node.value, names), _closure(node.slice, names)

    def subscript(get: Get, i: int | None, length: int | None) -> Any:
        try:
            return value(get, i, length)[index(get, i, length)]
        except (LookupError, TypeError):
            return None

    return subscript


def _call(node: ast.Call, names: set[str]) -> Closure:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
        raise ExpressionError("only a closed list of functions can be called")
    function = _FUNCTIONS[node.func.id]
    arguments = [_closure(argument, names) for argument in node.args]
    return lambda get, i, length: function(*(argument(get, i, length) for argument in arguments))


def _list(node: ast.List | ast.Tuple, names: set[str]) -> Closure:
    items = [_closure(item, names) for item in node.elts]
    return lambda get, i, length: [item(get, i, length) for item in items]


_BUILDERS: dict[type[ast.expr], Callable[[Any, set[str]], Closure]] = {
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.List: _list,
    ast.Tuple: _list,
}
