"""The mistakes that can be made in a module, by the usual operators of mutation testing.

boundary    `<` for `<=`, `>` for `>=`, `==` for `!=`, `is` for `is not`, `in` for `not in`, and the other way round
constant    a number off by one (a fraction by a tenth), a truth value the other way, a key or name with an underscore
arithmetic  `+` for `-`, `*` for `//`, `/` for `*`, `%` for `*`, `**` for `*`, and `-(-a // b)`, which rounds up, to
            `a // b`
not         dropped
and, or     one for the other
extreme     `min` for `max`, `max` for `min`
returned    what a function returns becomes a constant of its kind
branch      the condition of an `if`, or of a conditional expression, is never true

Messages (text with spaces), annotations, docstrings, decorators, what is raised and what only type checkers read stay.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
}
_TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
"""Operands of a sum that no subtraction knows: every test would fail."""

_RETURNED = {"bool": "False", "int": "0", "float": "0.0", "str": '""'}
_NAME = re.compile(r"[\w.\-/]+")


def mutants(path: str, text: str) -> list[Mutant]:
    """Every single mistake that the operators can make in a file, in the order of its lines."""
    found = _Finder(path, text)
    found.visit(ast.parse(text))
    return sorted(found.made, key=lambda item: (item.start, item.end, item.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.data = text.encode()
        self.lines = [0]
        for line in self.data.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.names: list[str] = []
        self.returns = "None"
        self.made: list[Mutant] = []

    def _start(self, node: ast.expr) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        return self.lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.expr) -> str:
        return self.data[self._start(node) : self._end(node)].decode()

    def _make(self, operator: str, start: int, end: int, new: str) -> None:
        if self.data[start:end].decode() != new:
            self.made.append(Mutant(self.path, operator, ".".join(self.names), start, end, new))

    def _replace(self, operator: str, node: ast.expr, new: str) -> None:
        self._make(operator, self._start(node), self._end(node), new)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, pattern: str, new: str) -> None:
        """Replace the operator between two operands, which may stand in parentheses of their own."""
        start, end = self._end(left), self._start(right)
        match = re.search(rf"(?<![<>=!*/]){pattern}(?![<>=*/])", self.data[start:end].decode())
        if match:
            self._make(operator, start + match.start(), start + match.end(), new)

    def _named(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        outer, self.returns = self.returns, "None"
        self.names.append(node.name)
        if isinstance(node, ast.FunctionDef):
            returned = ast.unparse(node.returns) if node.returns else ""
            self.returns = next((new for kind, new in _RETURNED.items() if returned.split(" |")[0] == kind), "None")
            if returned.startswith(("list[", "tuple[", "dict[")):
                self.returns = {"l": "[]", "t": "()", "d": "{}"}[returned[0]]
            for value in (*node.args.defaults, *(item for item in node.args.kw_defaults if item)):
                self.visit(value)
        for statement in node.body:
            self.visit(statement)
        self.names.pop()
        self.returns = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._named(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._named(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What is raised is a message."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 what stands in one has no place of its own."""

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._replace("branch", node.test, "False")
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._replace("branch", node.test, "False")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            if not isinstance(node.value, ast.Constant):
                self._replace("returned", node.value, self.returns)
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for compared, right in zip(node.ops, node.comparators, strict=True):
            pattern, new = _COMPARED[type(compared)]
            self._between("boundary", left, right, pattern, new)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        known = _ARITHMETIC.get(type(node.op))
        if known and not any(_is_text(operand) for operand in (node.left, node.right)):
            self._between("arithmetic", node.left, node.right, re.escape(known[0]), known[1])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("not", node, self._text(node.operand))
        rounded = _rounded_up(node)
        if rounded is not None:
            self._replace("arithmetic", node, f"({self._text(rounded[0])} // {self._text(rounded[1])})")
            self.visit(rounded[0])
            self.visit(rounded[1])
        else:
            self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("and, or", left, right, rf"\b{old}\b", new)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self._replace("extreme", node.func, "max" if node.func.id == "min" else "min")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        new = _changed(node.value)
        if new is not None:
            self._replace("constant", node, new)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, _TEXTS) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _rounded_up(node: ast.UnaryOp) -> tuple[ast.expr, ast.expr] | None:
    """a and b of `-(-a // b)`."""
    division = node.operand
    if not isinstance(node.op, ast.USub) or not isinstance(division, ast.BinOp):
        return None
    negative = division.left
    if not isinstance(division.op, ast.FloorDiv) or not isinstance(negative, ast.UnaryOp):
        return None
    return (negative.operand, division.right) if isinstance(negative.op, ast.USub) else None


def _changed(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    if isinstance(value, float):
        return repr(round(value * 1.1, 12)) if value else "0.1"
    if isinstance(value, str) and _NAME.fullmatch(value):
        return repr(f"{value}_").replace("'", '"')
    return None


def choices(found: list[Mutant]) -> Iterator[tuple[str, list[Mutant]]]:
    """The mutants of each operator."""
    for operator in sorted({item.operator for item in found}):
        yield operator, [item for item in found if item.operator == operator]
