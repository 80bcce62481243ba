"""A Python file as far as it can be read without running it: what its names are, and which calls it makes.

A name is known where one assignment in its scope gives it a value; what only running the file tells is a blank,
`${expression}`, which formats take for a value that is filled in when the job starts.
"""

from __future__ import annotations

import ast
import operator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...repository.script_options import dotted
from ...source.node import Entry, Node, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...hardware.gpu import Gpu
    from ...source.document import Document

MAX_STEPS = 12
"""Names and operators on the way to a literal."""

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip

_LOCAL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

UNKNOWN: Any = object()
"""What only running the file tells."""


class Call(NamedTuple):
    """A call: the whole name of what is called (`transformers.AutoModel.from_pretrained`), its scope, and the name that
    its value gets, "" for none."""

    name: str
    node: ast.Call
    scope: Scope
    target: str


class Scope:
    """The names of the file or of one of its functions; `None` among the values is a binding to no plain value."""

    def __init__(self, outer: Scope | None) -> None:
        self.outer = outer
        self.bound: dict[str, list[ast.expr | None]] = {}

    def bind(self, name: str, value: ast.expr | None) -> None:
        """One more binding of a name."""
        self.bound.setdefault(name, []).append(value)

    def value(self, name: str) -> tuple[ast.expr, Scope] | None:
        """The expression that a name stands for, and where it stands."""
        found = self.bound.get(name)
        if found is None:
            return self.outer.value(name) if self.outer is not None else None
        return (found[0], self) if len(found) == 1 and found[0] is not None else None


class Module:
    """A file: `calls` in file order, and the values of expressions in it."""

    def __init__(self, tree: ast.Module, document: Document, gpu: Gpu | None = None) -> None:
        self.tree, self.document, self.gpu = tree, document, gpu
        self.imports: dict[str, str] = {}
        self.calls: list[Call] = []
        self.scope = Scope(None)
        self._classes: dict[str, Scope] = {}
        self.parents = {below: above for above in ast.walk(tree) for below in ast.iter_child_nodes(above)}
        for node in ast.walk(tree):
            self._import(node)
        for statement in tree.body:
            self._read(statement, self.scope)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.document.text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def at(self, line: int, column: int) -> tuple[int, int]:
        """A place of the syntax tree, whose columns are bytes: the column in characters, and the offset."""
        start = self._starts[line - 1]
        written = self.document.text[start : self._starts[line] - 1]
        characters = len(written.encode("utf-8")[:column].decode("utf-8", "replace"))
        return characters + 1, start + characters

    def span(self, node: ast.expr | ast.keyword, length: int = 0) -> Span:
        """Where an expression stands, or the first `length` characters of it."""
        column, start = self.at(node.lineno, node.col_offset)
        if length:
            return Span(node.lineno, column, node.lineno, column + length, start, start + length)
        end_line, end_offset = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        end_column, end = self.at(end_line, end_offset)
        return Span(node.lineno, column, end_line, end_column, start, end)

    def name(self, node: ast.expr) -> str:
        """A dotted name with what is imported under its first part: `AM.from_pretrained` in full."""
        head, dot, rest = dotted(node).partition(".")
        return f"{self.imports.get(head, head)}{dot}{rest}"

    def made(self, node: ast.expr, scope: Scope) -> ast.expr:
        """The expression that a name stands for, or the expression itself."""
        for _ in range(MAX_STEPS):
            found = scope.value(node.id) if isinstance(node, ast.Name) else None
            if found is None:
                return node
            node, scope = found
        return node

    def entry(self, key: str, word: ast.keyword | None, value: ast.expr, scope: Scope) -> Entry:
        """An argument under the key of a format; of a positional one the key stands where the value does."""
        written = word.arg if word is not None and word.arg else key
        span = self.span(word, len(written)) if word is not None and word.arg else self.span(value)
        name = Node("scalar", key, span, written)
        found = self.node(value, scope, self.span(value))
        name.path = self.document.path
        return Entry(name, found)

    def implied(self, key: str, value: Any, at: ast.expr) -> Entry:
        """What a call says by itself, at its name."""
        span = self.span(at)
        return Entry(self._scalar(key, span), self._plain(value, span))

    def node(self, value: ast.expr, scope: Scope, span: Span, steps: int = MAX_STEPS) -> Node:
        """The value of an expression as a tree, all of it at `span`."""
        found = self.made(value, scope)
        inside = scope if found is value else self._scope_of(value, scope)
        if steps and isinstance(found, (ast.List, ast.Tuple)):
            return self._at(Node("sequence", [self.node(item, inside, span, steps - 1) for item in found.elts], span))
        if steps and isinstance(found, ast.Dict):
            entries = [
                Entry(self._scalar(str(name), span), self.node(item, inside, span, steps - 1))
                for key, item in zip(found.keys, found.values, strict=True)
                if key is not None and (name := self.value(key, inside)) is not UNKNOWN
            ]
            return self._at(Node("mapping", entries, span))
        said = self.value(value, scope)
        return self._plain(f"${{{_text(found)}}}" if said is UNKNOWN else said, span)

    def value(self, node: ast.expr, scope: Scope, steps: int = MAX_STEPS) -> Any:
        """The plain value of an expression; UNKNOWN where only running the file tells."""
        if not steps:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str | int | float | bool | None) else UNKNOWN
        if isinstance(node, ast.Name):
            found = scope.value(node.id)
            return self.value(*found, steps - 1) if found is not None else UNKNOWN
        if isinstance(node, ast.Attribute):
            return self._attribute(node, steps)
        try:
            return self._compound(node, scope, steps - 1)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    def _attribute(self, node: ast.Attribute, steps: int) -> Any:
        name = self.name(node)
        if name.startswith("torch.") and name.count(".") == 1:
            return _DTYPES.get(node.attr, node.attr)
        scope = self._classes.get(dotted(node.value))
        found = scope.value(node.attr) if scope is not None else None
        return self.value(*found, steps - 1) if found is not None and found[1] is scope else UNKNOWN

    def _compound(self, node: ast.expr, scope: Scope, steps: int) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            value = self.value(node.operand, scope, steps)
            if value is UNKNOWN:
                return UNKNOWN
            return not value if isinstance(node.op, ast.Not) else -value
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self.value(node.left, scope, steps), self.value(node.right, scope, steps)
            counts = all(isinstance(side, int | float) for side in (left, right))
            return _BINARY[type(node.op)](left, right) if counts else UNKNOWN
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, scope, steps)
            return UNKNOWN if test is UNKNOWN else self.value(node.body if test else node.orelse, scope, steps)
        if isinstance(node, ast.Subscript):
            held, key = self.made(node.value, scope), self.value(node.slice, scope, steps)
            return self._item(held, key, self._scope_of(node.value, scope), steps)
        if isinstance(node, ast.Call):
            return self._of_the_gpu(self.name(node.func))
        return UNKNOWN

    def _item(self, held: ast.expr, key: Any, scope: Scope, steps: int) -> Any:
        """An item of a mapping that stands in the file."""
        for name, value in zip(held.keys, held.values, strict=True) if isinstance(held, ast.Dict) else ():
            if name is not None and key is not UNKNOWN and self.value(name, scope, steps) == key:
                return self.value(value, scope, steps)
        return UNKNOWN

    def _of_the_gpu(self, name: str) -> Any:
        """What scripts ask of the card, where that is known."""
        asks = name.rpartition(".")[2] in ("is_bf16_supported", "is_bfloat16_supported", "is_torch_bf16_gpu_available")
        return self.gpu.bf16 if asks and self.gpu is not None else UNKNOWN

    def _scope_of(self, value: ast.expr, scope: Scope) -> Scope:
        """The scope of what a name stands for."""
        for _ in range(MAX_STEPS):
            found = scope.value(value.id) if isinstance(value, ast.Name) else None
            if found is None:
                return scope
            value, scope = found
        return scope

    def _plain(self, value: Any, span: Span) -> Node:
        if isinstance(value, list):
            return self._at(Node("sequence", [self._plain(item, span) for item in value], span))
        return self._scalar(value, span)

    def _scalar(self, value: Any, span: Span) -> Node:
        return self._at(Node("scalar", value, span, str(value)))

    def _at(self, node: Node) -> Node:
        node.path = self.document.path
        return node

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                self.imports[item.asname or item.name.partition(".")[0]] = (
                    item.name if item.asname else item.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                self.imports[item.asname or item.name] = f"{node.module}.{item.name}"

    def _read(self, node: ast.AST, scope: Scope) -> None:
        """Note what a statement binds, and its calls; a function has names of its own."""
        if isinstance(node, _LOCAL):
            inner = Scope(scope)
            arguments = node.args
            for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                inner.bind(item.arg, None)
            for special in (arguments.vararg, arguments.kwarg):
                if special is not None:
                    inner.bind(special.arg, None)
            body = node.body if isinstance(node.body, list) else [node.body]
            for below in (*getattr(node, "decorator_list", ()), *body):
                self._read(below, inner)
            return
        if isinstance(node, ast.ClassDef):
            scope = self._classes.setdefault(node.name, Scope(scope))
        self._bind(node, scope)
        if isinstance(node, ast.Call):
            self.calls.append(Call(self.name(node.func), node, scope, self._target(node)))
        for below in ast.iter_child_nodes(node):
            self._read(below, scope)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            alone = node.targets[0] if len(node.targets) == 1 else None
            for target in node.targets:
                for name in _names(target):
                    scope.bind(name, node.value if target is alone and isinstance(target, ast.Name) else None)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            scope.bind(node.target.id, node.value)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.comprehension)):
            for name in _names(node.target):
                scope.bind(name, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            for name in _names(node.optional_vars):
                scope.bind(name, None)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            for name in node.names:
                scope.bind(name, None)

    def _target(self, call: ast.Call) -> str:
        """The name that the value of a call gets, through methods of it (`load(...).half().cuda()`)."""
        node: ast.AST = call
        while isinstance(above := self.parents.get(node), (ast.Attribute, ast.Call, ast.Await)):
            if isinstance(above, ast.Call) and above.func is not node:
                return ""
            node = above
        if not isinstance(above, (ast.Assign, ast.AnnAssign)):
            return ""
        target = above.targets[0] if isinstance(above, ast.Assign) else above.target
        return dotted(target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target)


_DTYPES = {"half": "float16", "float": "float32"}
"""torch's other names of dtypes."""


def _names(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))


def _text(node: ast.AST) -> str:
    """An expression as one short line, without what would end a blank."""
    return " ".join(ast.unparse(node).split())[:80].replace("}", ")").replace("{", "(")
