"""Plain values compared with what other readers give."""

from __future__ import annotations

import datetime as dt
from typing import Any


def same(ours: Any, theirs: Any) -> bool:
    """Equal in value and type; dates and bytes stay strings with us, and so do integers of over 20 digits."""
    if isinstance(theirs, dt.date | dt.time | bytes):
        return isinstance(ours, str)
    if type(theirs) is int and abs(theirs) >= 10**20:
        return isinstance(ours, str)
    if isinstance(theirs, set):
        theirs = dict.fromkeys(theirs)
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        if any(not isinstance(key, str | int | float | None) for key in theirs):
            return len(ours) == len(theirs)
        return len(ours) == len(theirs) and all(k in ours and same(ours[k], v) for k, v in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs or (ours != ours and theirs != theirs)


def scalars(node: Any) -> list[Any]:
    """Every scalar node of a tree, keys included, each once."""
    seen: dict[int, Any] = {}
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        waiting.extend(node.items())
        for entry in node.entries():
            waiting.extend(entry)
    return [each for each in seen.values() if each.is_scalar]
