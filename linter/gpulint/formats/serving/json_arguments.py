"""Arguments that hold JSON: a mapping of the file, JSON text, or a flag a key (`--limit-mm-per-prompt.image 0`).

Source: vllm/utils/argparse_utils.py `FlexibleArgumentParser.parse_args`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.arguments import Arguments, Given

MAX_TEXT = 20_000
"""Longest JSON text that is read; configs are untrusted."""


def section(arguments: Arguments, name: str) -> dict[str, Given]:
    """What an argument's mapping says, by key; flags of single keys win over the whole."""
    whole = arguments.raw(name)
    stated = as_mapping(whole.value) if whole is not None else {}
    inner = arguments.mapping(name)
    found = {key: inner.raw(key) or whole._replace(value=value) for key, value in stated.items() if whole is not None}
    for entry in arguments:
        head, dot, path = entry.partition(".")
        given = arguments.raw(entry)
        if dot and head == name and path and given is not None:
            first, *rest = path.split(".")
            before = found[first].value if first in found else None
            found[first] = given._replace(value=_placed(before, rest, given.value))
    return found


def as_mapping(value: Any) -> dict[str, Any]:
    """A mapping that is stated as one, or as JSON text; empty for all else."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if len(value) <= MAX_TEXT else None
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _placed(before: Any, path: list[str], value: Any) -> Any:
    """`value` at a place in what was there before."""
    if not path:
        return value
    whole = {**before} if isinstance(before, dict) else {}
    at: dict[str, Any] = whole
    for key in path[:-1]:
        below = at.get(key)
        at[key] = {**below} if isinstance(below, dict) else {}
        at = at[key]
    at[path[-1]] = value
    return whole
