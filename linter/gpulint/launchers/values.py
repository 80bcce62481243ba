"""What stands at a place of a launcher file, which may not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..formats.core.coercion import as_integer

if TYPE_CHECKING:
    from ..source.node import Node


def count(value: object) -> int | None:
    """A number of GPUs; 0 says nothing."""
    return as_integer(value) or None


def value_at(node: Node | None, path: str) -> Node | None:
    """The value at a dotted path of keys."""
    entry = node.find(path) if node is not None else None
    return entry.value if entry is not None else None


def mapping_at(node: Node | None, path: str) -> Node | None:
    """The mapping at a dotted path of keys."""
    found = value_at(node, path)
    return found if found is not None and found.is_mapping else None


def text(node: Node | None, path: str) -> str:
    """The string at a dotted path of keys; "" where there is none."""
    found = value_at(node, path)
    return found.value if found is not None and isinstance(found.value, str) else ""


def scalar(node: Node | None, path: str) -> str:
    """The scalar at a dotted path of keys, as text; "" where there is none."""
    found = value_at(node, path)
    return str(found.value) if found is not None and found.is_scalar and found.value is not None else ""


def listed(node: Node | None) -> list[Node]:
    """The items of a list, or a scalar as the only one."""
    if node is None:
        return []
    return node.items() if node.is_sequence else [node] if node.is_scalar and node.value is not None else []


def words(node: Node | None) -> list[str]:
    """The words of a list, or of a text with commas between them: `[L4, A10G]` and `L4,A10G`."""
    return [word.strip() for item in listed(node) for word in str(item.value).split(",") if word.strip()]


def mappings(node: Node | None) -> list[Node]:
    """The items of a list that are mappings."""
    return [item for item in node.items() if item.is_mapping] if node is not None else []
