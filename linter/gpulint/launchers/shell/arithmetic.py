"""Whole-number arithmetic as shells do it, for `$((NODES * 8))`."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_LENGTH = 200
"""Characters of an expression."""

MAX_NUMBER = 1 << 63
"""Shell integers have 64 bits."""

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: int(a / b) if abs(a) < 1 << 52 else a // b,
    ast.Mod: lambda a, b: a - b * int(a / b),
}


def whole_number(expression: str, known: Mapping[str, str]) -> int | None:
    """The value of `+ - * / %` over numbers and known variables; None where it cannot be worked out."""
    if len(expression) > MAX_LENGTH:
        return None
    try:
        tree = ast.parse(expression.replace("$", "").replace("{", "").replace("}", "").strip(), mode="eval")
        return _value(tree.body, known)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, known: Mapping[str, str]) -> int:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        number = _OPERATIONS[type(node.op)](_value(node.left, known), _value(node.right, known))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = -_value(node.operand, known)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        number = node.value
    elif isinstance(node, ast.Name) and node.id in known:
        number = int(known[node.id])
    else:
        raise ValueError("not arithmetic")
    if abs(number) >= MAX_NUMBER:
        raise ValueError("too large")
    return number
