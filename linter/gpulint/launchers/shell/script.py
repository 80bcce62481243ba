"""A shell text that stands in a file, and where each of its characters stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...source.places import Places
from ...source.within import offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...source.document import Document
    from ...source.node import Node, Span


class Script(NamedTuple):
    """What a shell would read: `text`, and for each of its characters the offset in the file it comes from."""

    text: str
    at: Sequence[int]


def whole(document: Document) -> Script:
    """A file that is all script."""
    return Script(document.text, range(len(document.text)))


def of_scalar(document: Document, node: Node) -> Script:
    """A string value of a config, such as the `run: |` block of a task file."""
    return Script(str(node.value), offsets(document.text, node))


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
