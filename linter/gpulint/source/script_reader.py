"""Shell scripts and Python files as documents: their text and comments. What they start is read by `launchers/`."""

from __future__ import annotations

import re

from .document import Document
from .node import Comment, Node, Span
from .places import lines

_COMMENT = re.compile(r"(?:^|[ \t])#(.*)$")


def read_script(text: str, path: str, syntax: str) -> Document:
    """A script; its tree is an empty mapping.

    A `#` within quotes may be taken for a comment, which only comments that speak to gpulint would notice.
    """
    comments = [
        Comment(number, match[1])
        for number, line in enumerate(lines(text), 1)
        if "#" in line and (match := _COMMENT.search(line))
    ]
    root = Node("mapping", [], Span(1, 1, 1, 1, 0, 0))
    return Document(path, syntax, text, [root], comments, [])
