"""Where the characters of a string value stand in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node


def offsets(text: str, node: Node) -> list[int]:
    """For each character of a scalar's value the offset in the file's text that it comes from.

    Characters other than blanks stand in the file in the same order; indentation, folding, quotes and escapes only put
    others between them. A character that is not found (a `\\t` escape) takes the place of the one before.
    """
    value = str(node.value)
    raw = text[node.span.start : node.span.end]
    here = 0
    if raw[:1] in ("|", ">"):
        here = raw.find("\n") + 1
    elif raw[:1] in ("'", '"'):
        here = 1
    at: list[int] = []
    for char in value:
        if not char.isspace():
            found = raw.find(char, here)
            here = found if found >= 0 else here
        elif char == "\n" or raw[here : here + 1].isspace():
            found = raw.find(char, here)
            here = found if 0 <= found <= here + 1 else here
        at.append(node.span.start + min(here, max(0, len(raw) - 1)))
        here += 1
    return at
