"""Arguments that hold JSON: a mapping of the file, JSON text, or a flag a key (`--limit-mm-per-prompt.image 0`).

Source: vllm/utils/argparse_utils.py `FlexibleArgumentParser.parse_args`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import Arguments, Given


def section(arguments: Arguments, name: str) -> dict[str, Given]:
    """What an argument's mapping says, by key; flags of single keys win over the whole."""
    whole = arguments.raw(name)
    stated = _mapping(whole.value) if whole is not None else {}
    inner = arguments.mapping(name)
    found = {key: inner.raw(key) or whole._replace(value=value) for key, value in stated.items() if whole is not None}
    for entry in arguments:
        head, dot, path = entry.partition(".")
        given = arguments.raw(entry)
        if dot and head == name and path and given is not None:
            first, *rest = path.split(".")
            before = found[first].value if first in found else None
            found[first] = given._replace(value=_nested(before, rest, given.value))
    return found


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _nested(before: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    inner = before if isinstance(before, dict) else {}
    return {**inner, path[0]: _nested(inner.get(path[0]), path[1:], value)}
