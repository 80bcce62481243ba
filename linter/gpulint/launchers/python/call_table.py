"""The rows of `calls.json`: which calls start GPU work, and what their arguments say in the keys of a format."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...source.node import Entry
    from .module import Call, Module, Scope

_TABLE = read_table(__file__, "calls.json")

OBJECTIVES: Mapping[str, str] = _TABLE["objectives"]
"""Parts of the names of model classes -> what a Trainer trains such a model for."""

TRAINERS: Mapping[str, str] = _TABLE["trainers"]
"""How the names of TRL's classes begin -> what they train for."""

GONE: list[dict[str, Any]] = _TABLE["gone"]["rows"]
"""Arguments that trainers no longer take: since which release of which package, and where they went."""


class Row(NamedTuple):
    """A kind of call; see `about` in the table."""

    name: str
    role: str
    format: str = ""
    says: Mapping[str, str] = {}
    every: bool = False
    parts: tuple[str, ...] = ()
    implies: Mapping[str, Any] = {}
    library: str = ""
    objective: str = ""
    on_gpu: bool = False


class Found(NamedTuple):
    """A call of the table, and what it says.

    entries   its arguments under the keys of the format
    implied   what it says by itself
    opaque    an argument that only running the file tells and that may hold any other, such as `**options`
    """

    row: Row
    call: Call
    entries: dict[str, Entry]
    implied: dict[str, Entry]
    opaque: str

    @property
    def said(self) -> dict[str, Entry]:
        """All that it says."""
        return {**self.implied, **self.entries}

    def argument(self, *names: str) -> ast.expr | None:
        """What a call gives as an argument, by its name or, of digits, its place."""
        call = self.call.node
        for name in names:
            if name.isdigit() and int(name) < len(call.args):
                return call.args[int(name)]
            value = next((word.value for word in call.keywords if word.arg == name), None)
            if value is not None:
                return value
        return None


@cache
def rows() -> tuple[tuple[re.Pattern[str], Row], ...]:
    """The rows, in the order in which they are tried."""
    told = ({name: value for name, value in row.items() if name in Row._fields} for row in _TABLE["calls"])
    made = [Row(**{**row, "parts": tuple(row.get("parts", ()))}) for row in told]
    return tuple((re.compile(row.name), row) for row in made)


def row_of(name: str) -> Row | None:
    """The row of what is called by a whole name."""
    return next((row for pattern, row in rows() if pattern.fullmatch(name)), None)


def found_in(module: Module) -> list[Found]:
    """The calls of the table that a file makes, but for those that are arguments of others."""
    found = []
    for call in module.calls:
        row = row_of(call.name)
        if row is not None and row.role != "part":
            found.append(read_call(module, row, call.node, call.scope)._replace(call=call))
    return found


def read_call(module: Module, row: Row, node: ast.Call, scope: Scope) -> Found:
    """What a call says in the words of its row."""
    from .module import Call

    entries: dict[str, Entry] = {}
    implied = {key: module.implied(key, value, node.func) for key, value in row.implies.items()}
    opaque = ""
    for name, word, value in _arguments(module, node, scope):
        if name in row.parts:
            inner = _part(module, row, value, scope)
            if inner is not None:
                said, also, hides = inner
                entries |= said
                implied |= also
                opaque = opaque or hides
                continue
            if module.value(value, scope) is None:
                continue
            if name not in row.says:
                opaque = opaque or ast.unparse(value)[:60]
                continue
        if not name:
            opaque = opaque or f"**{ast.unparse(value)[:60]}"
            continue
        key = row.says.get(name, name if row.every and not name.isdigit() else "")
        if key:
            entries[key] = module.entry(key, word, value, scope)
    return Found(row, Call(row.name, node, scope, ""), entries, implied, opaque)


def _arguments(module: Module, node: ast.Call, scope: Scope) -> Iterator[tuple[str, ast.keyword | None, ast.expr]]:
    """The arguments of a call by name or place; those of a mapping that stands in the file by their own names, and ""
    for what holds unknown ones."""
    for number, value in enumerate(node.args):
        yield ("" if isinstance(value, ast.Starred) else str(number)), None, value
    for word in node.keywords:
        if word.arg is not None:
            yield word.arg, word, word.value
            continue
        held = _mapping(module, word.value, scope)
        if held is None:
            yield "", None, word.value
        for name, value in held or ():
            yield name, None, value


def _mapping(module: Module, value: ast.expr, scope: Scope) -> list[tuple[str, ast.expr]] | None:
    """The names and values of a mapping that stands in the file; None where it holds others, too."""
    made = module.made(value, scope)
    if isinstance(made, ast.Call) and module.name(made.func) == "dict" and not made.args:
        return [(word.arg, word.value) for word in made.keywords if word.arg]
    if not isinstance(made, ast.Dict):
        return None
    names = [key.value for key in made.keys if isinstance(key, ast.Constant)]
    return list(zip(map(str, names), made.values, strict=True)) if len(names) == len(made.values) else None


def _part(
    module: Module, row: Row, value: ast.expr, scope: Scope
) -> tuple[dict[str, Entry], dict[str, Entry], str] | None:
    """What an argument says that is a call of its own, or a mapping of further arguments."""
    made = module.made(value, scope)
    if isinstance(made, ast.Call):
        inner = row_of(module.name(made.func))
        if inner is not None and inner.role in ("part", "adapter"):
            found = read_call(module, inner, made, scope)
            return found.entries, found.implied, found.opaque
    held = _mapping(module, value, scope)
    if held is None:
        return None
    known = {**row.says, "load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit"}
    entries: dict[str, Entry] = {}
    for name, item in held:
        inner_part = _part(module, row, item, scope) if name in row.parts else None
        if inner_part is not None:
            entries |= {**inner_part[1], **inner_part[0]}
        elif name in known:
            entries[known[name]] = module.entry(known[name], None, item, scope)
    return entries, {}, ""
