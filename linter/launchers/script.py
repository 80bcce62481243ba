"""A shell text that stands in a file, and where each of its characters stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..source.places import Places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..source.document import Document
    from ..source.node import Node, Span


class Script(NamedTuple):
    """What a shell would read: `text`, and for each of its characters the offset in the file it comes from."""

    text: str
    at: Sequence[int]


def whole(document: Document) -> Script:
    """A file that is all script."""
    return Script(document.text, range(len(document.text)))


def of_scalar(document: Document, node: Node) -> Script:
    """A string value of a config, such as the `run: |` block of a task file.

    Its characters other than blanks stand in the file in the same order; indentation, folding, quotes and escapes only
    put others between them. A character that is not found (a `\\t` escape) takes the place of the one before.
    """
    text = str(node.value)
    raw = document.text[node.span.start : node.span.end]
    start = 0
    if raw[:1] in ("|", ">"):
        start = raw.find("\n") + 1
    elif raw[:1] in ("'", '"'):
        start = 1
    at: list[int] = []
    here = start
    for char in text:
        if not char.isspace():
            found = raw.find(char, here)
            here = found if found >= 0 else here
        elif char == "\n" or raw[here : here + 1].isspace():
            found = raw.find(char, here)
            here = found if 0 <= found <= here + 1 else here
        at.append(node.span.start + min(here, max(0, len(raw) - 1)))
        here += 1
    return Script(text, at)


def place(places: Places, at: Sequence[int]) -> Span:
    """The span of characters: of their first run in the file, within one line where they cross several."""
    if not at:
        return places.span(0, 0)
    end = at[0]
    for offset in at[1:]:
        if offset != end + 1:
            break
        end = offset
    return places.span(at[0], end + 1)
