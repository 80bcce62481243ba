"""The comments of a YAML text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..node import Comment

if TYPE_CHECKING:
    from ..places import Places

_LINE_END = re.compile("[\r\n\x85\u2028\u2029]|$")
_HEADER_COMMENT = re.compile(r"[|>][-+0-9]*[ \t]+#")


def comments(text: str, places: Places, scalars: list[tuple[int, int]]) -> list[Comment]:
    """Every comment, given the spans of the non-empty scalars in file order.

    Outside a scalar a `#` can only open a comment: no other token holds one. Within a scalar it is content,
    but for the header line of a block scalar (`key: | # comment`).
    """
    found: list[Comment] = []
    at = text.find("#")
    index = 0
    while at >= 0:
        while index < len(scalars) and scalars[index][1] <= at:
            index += 1
        if index < len(scalars) and scalars[index][0] <= at:
            start, end = scalars[index]
            header = _HEADER_COMMENT.match(text, start, end)
            if header is None or header.end() != at + 1:
                at = text.find("#", at + 1 if header and at < header.end() else end)
                continue
        line_end = _LINE_END.search(text, at)
        stop = line_end.start() if line_end else len(text)
        found.append(Comment(places.at(at)[0], text[at + 1 : stop].strip()))
        at = text.find("#", stop)
    return found
