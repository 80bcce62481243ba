"""Python values as JSON text in the style of a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..document import Document
    from ..node import Node


def step_of(root: Node) -> int:
    """Blanks a level of nesting, from the first member of the root that starts a line; 2 where none does."""
    members = [entry.key for entry in root.entries()] + root.items()
    first = members[0].span if members else None
    return first.column - 1 if first and first.line > root.span.line and first.column > 1 else 2


def separators(document: Document) -> tuple[str, str]:
    """The comma and colon of a one-line value: without blanks where the first member has none."""
    entries = document.root.entries()
    tight = bool(entries) and document.text.startswith(":", entries[0].key.span.end)
    tight = tight and entries[0].value.span.start == entries[0].key.span.end + 1
    return (",", ":") if tight else (", ", ": ")


def value(item: Any, document: Document, indent: str) -> str:
    """A value for a place whose line starts with `indent`: over several lines where the file is written so.

    A list of scalars stays on one line.
    """
    lines = document.root.span.end_line > document.root.span.line
    if not lines or not item or not isinstance(item, list | dict) or _is_flat_list(item):
        return json.dumps(item, ensure_ascii=False, separators=separators(document))
    newline = "\r\n" if "\r\n" in document.text else "\n"
    unit = "\t" if indent.startswith("\t") else " " * step_of(document.root)
    return _spread(item, newline + indent, unit)


def _is_flat_list(item: Any) -> bool:
    return isinstance(item, list) and not any(isinstance(each, list | dict) for each in item)


def _spread(item: Any, margin: str, unit: str) -> str:
    if not item or not isinstance(item, list | dict) or _is_flat_list(item):
        return json.dumps(item, ensure_ascii=False)
    inner = margin + unit
    if isinstance(item, list):
        return "[" + ",".join(inner + _spread(each, inner, unit) for each in item) + margin + "]"
    members = (f"{json.dumps(name, ensure_ascii=False)}: {_spread(each, inner, unit)}" for name, each in item.items())
    return "{" + ",".join(inner + member for member in members) + margin + "}"
