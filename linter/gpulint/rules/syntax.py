"""Text of a rule expression to its tree: Python expression syntax, restricted to a closed list.

Allowed are literals, lists and tuples, dotted facts, `fact["key with.dots"]`, comparisons, `and or not in`,
`+ - * / // %`, unary minus, conditional expressions, and calls of the functions in `ARITY`. Text is at most
1000 characters and 32 levels deep. The `ast` module only parses; nothing is ever compiled to Python code.
"""

from __future__ import annotations

import ast
import math
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .expression import Tree

MAX_LENGTH = 1000
MAX_DEPTH = 32
_HUGE = 1 << 63
"""Whole numbers from here on are refused: no size, count or length of a job comes near."""

ARITY: dict[str, tuple[int, int]] = {
    "min": (1, 8), "max": (1, 8), "ceil": (1, 1), "floor": (1, 1), "len": (1, 1), "any_of": (2, 2),
    "number": (1, 1), "lower": (1, 1), "starts_with": (2, 2), "ends_with": (2, 2), "known": (1, 1),
    "divisors": (1, 1),
    "parts": (1, 1),
    "words": (1, 1),
    "distinct": (1, 1),
    "next_of": (2, 2),
    "default": (2, 2), "has": (1, 1), "peak_if": (2, 8),
}  # fmt: skip
"""The functions an expression may call, with their least and greatest number of arguments."""

_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "==", ast.IsNot: "!=",
}  # fmt: skip


class Placed(list[Any]):
    """A tree that knows at which character of its text, blanks counted as one, it begins."""

    __slots__ = ("column",)
    column: int


class ExpressionError(Exception):
    """An expression that is not of the language; `column` counts characters from 0."""

    def __init__(self, reason: str, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


def parse(text: str) -> Tree:
    """The tree of an expression, with the places of its parts; raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression may have at most {MAX_LENGTH} characters, this one has {len(text)}")
    flat = flattened(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(flat, mode="eval").body
    except SyntaxError as error:
        reason = error.msg if len(error.msg) <= 80 else "invalid syntax"
        raise ExpressionError(f"not an expression: {reason}", max(0, (error.offset or 1) - 1)) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("not an expression") from None
    try:
        tree = _tree(body, 1)
    except ExpressionError as error:
        error.column = _characters(flat, error.column)
        raise
    if not flat.isascii():
        for part in walk(tree):
            part.column = _characters(flat, part.column)
    return tree


def flattened(text: str) -> str:
    """The text as it is parsed and columns are counted: every run of blanks is one."""
    return " ".join(text.split())


def walk(tree: Tree) -> Iterator[Placed]:
    """Every part of a parsed tree that knows its place, the tree first."""
    stack: list[Any] = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, Placed):
            yield part
        stack += [item for item in reversed(part) if isinstance(item, list)]


def _characters(flat: str, size: int) -> int:
    """Bytes of UTF-8, as `ast` counts columns, in characters."""
    return len(flat.encode("utf-8", "surrogatepass")[:size].decode("utf-8", "ignore"))


def _tree(node: ast.expr, depth: int) -> Tree:
    if depth > MAX_DEPTH:
        raise ExpressionError(f"an expression may nest at most {MAX_DEPTH} levels", node.col_offset)
    for kind, build in _BUILDERS:
        if isinstance(node, kind):
            tree = Placed(build(node, depth + 1))
            tree.column = node.col_offset
            return tree
    raise ExpressionError(f"{_KINDS.get(type(node).__name__, 'this syntax')} is not allowed", node.col_offset)


def _constant(node: ast.Constant, _depth: int) -> Tree:
    if node.value is not None and not isinstance(node.value, str | int | float | bool):
        raise ExpressionError("only text, numbers, true, false and null are literals", node.col_offset)
    if isinstance(node.value, int | float) and not abs(node.value) < (math.inf if type(node.value) is float else _HUGE):
        raise ExpressionError("numbers must be below 2^63", node.col_offset)
    return ["const", node.value]


def _name(node: ast.Name | ast.Attribute | ast.Subscript, _depth: int) -> Tree:
    if isinstance(node, ast.Name) and node.id.lower() in _WORDS:
        return ["const", _WORDS[node.id.lower()]]
    return ["fact", fact_path(node)]


def fact_path(node: ast.expr) -> str:
    """The dotted path of a fact; a subscript adds its text as it stands."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            parts.append(node.slice.value)
        else:
            raise ExpressionError("a fact must be a dotted name", node.col_offset)
        node = node.value
    return ".".join([node.id, *reversed(parts)])


def _boolean(node: ast.BoolOp, depth: int) -> Tree:
    word = "and" if isinstance(node.op, ast.And) else "or"
    return [word, *(_tree(value, depth) for value in node.values)]


def _unary(node: ast.UnaryOp, depth: int) -> Tree:
    if isinstance(node.op, ast.Not):
        return ["not", _tree(node.operand, depth)]
    if isinstance(node.op, ast.USub):
        operand = _tree(node.operand, depth)
        if operand[0] == "const" and isinstance(operand[1], int | float):
            return ["const", -operand[1]]
        return ["neg", operand]
    raise ExpressionError("this operator is not allowed", node.col_offset)


def _binary(node: ast.BinOp, depth: int) -> Tree:
    sign = _ARITHMETIC.get(type(node.op))
    if sign is None:
        raise ExpressionError("only + - * / // and % are allowed", node.col_offset)
    return [sign, _tree(node.left, depth), _tree(node.right, depth)]


def _compare(node: ast.Compare, depth: int) -> Tree:
    operands = [_tree(item, depth) for item in (node.left, *node.comparators)]
    pairs = [[_COMPARISON[type(sign)], operands[i], operands[i + 1]] for i, sign in enumerate(node.ops)]
    return pairs[0] if len(pairs) == 1 else ["chain", *pairs]


def _conditional(node: ast.IfExp, depth: int) -> Tree:
    return ["if", _tree(node.test, depth), _tree(node.body, depth), _tree(node.orelse, depth)]


def _sequence(node: ast.List | ast.Tuple, depth: int) -> Tree:
    items = [_tree(item, depth) for item in node.elts]
    if all(item[0] == "const" for item in items):
        return ["const", [item[1] for item in items]]
    return ["list", *items]


def _call(node: ast.Call, depth: int) -> Tree:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in ARITY:
        raise ExpressionError(f"only these can be called: {', '.join(sorted(ARITY))}", node.col_offset)
    low, high = ARITY[name]
    if node.keywords or not low <= len(node.args) <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise ExpressionError(f"{name} needs {wanted} arguments", node.col_offset)
    arguments = [_tree(argument, depth) for argument in node.args]
    if name == "has":
        if arguments[0][0] != "fact" or not arguments[0][1].startswith(("config.", "deepspeed.", "launch.", "option.")):
            raise ExpressionError("has needs a key: has(config.key)", node.col_offset)
        return ["has", arguments[0][1]]
    if name == "peak_if":
        return ["peak_if", *_changes(arguments, node.col_offset)]
    return ["call", name, *arguments]


def _changes(arguments: list[Tree], column: int) -> list[Any]:
    values = [argument[1] for argument in arguments if argument[0] == "const"]
    if len(values) != len(arguments) or len(values) % 2 or not all(isinstance(v, str) for v in values[::2]):
        raise ExpressionError('peak_if needs pairs of a Job field and a literal: peak_if("packing", false)', column)
    return values


_BUILDERS: tuple[tuple[Any, Any], ...] = (
    (ast.Constant, _constant),
    ((ast.Name, ast.Attribute, ast.Subscript), _name),
    (ast.BoolOp, _boolean),
    (ast.UnaryOp, _unary),
    (ast.BinOp, _binary),
    (ast.Compare, _compare),
    (ast.IfExp, _conditional),
    ((ast.List, ast.Tuple), _sequence),
    (ast.Call, _call),
)
_KINDS = {
    "Lambda": "a lambda",
    "ListComp": "a comprehension",
    "GeneratorExp": "a comprehension",
    "SetComp": "a comprehension",
    "DictComp": "a comprehension",
    "Dict": "a dictionary",
    "Set": "a set",
    "JoinedStr": "an f-string",
    "NamedExpr": "an assignment",
    "Await": "await",
    "Starred": "a star",
}
