"""Whether upstream would accept a value that is written for a key.

Three manners of reading exist. `pydantic` is its lax mode (docs.pydantic.dev, conversion table): a number may be
written as a string, a boolean as 0/1/yes/no/on/off, a whole float as an integer; a string may be nothing else.
`yaml` is a dataclass that no one validates: only a kind that cannot work (a mapping for a number) is wrong. `json` is
the Kubernetes API server: a value has the JSON type that the field has, null stands for a field that is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...source.node import Node

_BOOLEAN_WORDS = frozenset({"0", "1", "f", "t", "n", "y", "no", "yes", "off", "on", "false", "true"})

_NAMES = {
    "boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a string",
    "array": "a list", "object": "a mapping", "null": "null",
}  # fmt: skip


def accepts(schema: dict[str, Any], node: Node, coercion: str) -> bool:
    """Whether `node` is acceptable to a schema without `$ref` and `anyOf`, its items and keys left aside."""
    types = schema.get("type")
    if types is None and "enum" not in schema:
        return True
    names: list[str] = types if isinstance(types, list) else [types] if types else []
    if node.is_mapping:
        return "object" in names
    if node.is_sequence:
        return "array" in names
    value = node.value
    if coercion == "yaml":
        return _loosely(names, value) or str(value).lower() in (str(item).lower() for item in schema.get("enum", ()))
    if coercion == "json":
        return _strictly(names, value) or value in schema.get("enum", ())
    if value is None:
        return "null" in names or None in schema.get("enum", ())
    if "enum" in schema:
        return any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in schema["enum"])
    return any(_TESTS[name](value) for name in names if name in _TESTS)


def _loosely(names: Sequence[str], value: Any) -> bool:
    if value is None:
        return True
    if {"string", "boolean"} & set(names):
        return True
    if {"number", "integer"} & set(names):
        return _is_number(value)
    return "null" in names and value in ("None", "null", "")


def _strictly(names: Sequence[str], value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, (int, float)):
        return "number" in names or ("integer" in names and float(value).is_integer())
    return "string" in names


def _is_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in _BOOLEAN_WORDS
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def _is_number(value: Any) -> bool:
    return as_number(value) is not None


def _is_integer(value: Any) -> bool:
    if isinstance(value, str):
        try:
            int(value)
        except ValueError:
            # pydantic takes "10.0" for an integer, but not "1e1" or "10.5"
            whole, dot, rest = value.strip().partition(".")
            return bool(dot) and whole.lstrip("+-").isdigit() and not rest.strip("0")
        return True
    return isinstance(value, (bool, int)) or (isinstance(value, float) and value.is_integer())


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


_TESTS = {"boolean": _is_boolean, "integer": _is_integer, "number": _is_number, "string": _is_string}


def as_number(value: Any) -> float | None:
    """The number that a scalar stands for, `2e-4` as a string included; None where it is none."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


_WIDEST = 1 << 63


def as_integer(value: Any) -> int | None:
    """The whole number that a scalar stands for; None where it is none (`1e9` is one, as DeepSpeed reads it).

    One beyond 64 bits is none: no tensor has such a size.
    """
    number = as_number(value)
    if number is None or isinstance(value, bool) or number != number or abs(number) == float("inf"):
        return None
    return int(number) if number == int(number) and abs(number) < _WIDEST else None


def as_boolean(value: Any) -> bool | None:
    """The boolean that a scalar stands for, as pydantic and argparse read words; None where it is none."""
    if isinstance(value, str):
        word = value.lower()
        return word in ("1", "t", "y", "yes", "on", "true") if word in _BOOLEAN_WORDS else None
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def type_text(branches: Sequence[dict[str, Any]]) -> str:
    """What a key takes, for people: `a whole number or null`, `one of a, b`."""
    parts: list[str] = []
    for branch in branches:
        if "enum" in branch:
            parts.append(one_of([str(value) for value in branch["enum"] if value is not None]))
            continue
        types = branch.get("type")
        if types == "object" and branch.get("properties"):
            parts.append(f"a mapping ({_listed(list(branch['properties']))})")
            continue
        parts += [_NAMES.get(name, name) for name in (types if isinstance(types, list) else [types]) if name]
    return " or ".join(dict.fromkeys(part for part in parts if part != "null")) or "null"


LISTED = 5
"""Words of an enumeration, or keys of a mapping, that a message names."""


def _listed(words: Sequence[str]) -> str:
    return ", ".join([*words[:LISTED], *(["..."] if len(words) > LISTED else [])])


def listed(words: Sequence[str]) -> str:
    """The words of an enumeration, for people; of many their number, too."""
    return one_of(words) if len(words) <= LISTED else f"one of {len(words)} words ({_listed(words)})"


def one_of(words: Sequence[str]) -> str:
    """The words of an enumeration, for people; the first ones where there are many."""
    return words[0] if len(words) == 1 else f"one of {_listed(words)}"


def found_text(node: Node) -> str:
    """A value that is of another type than its key's, for people."""
    if node.is_mapping:
        return "a mapping"
    if node.is_sequence:
        return "a list"
    if isinstance(node.value, bool) and node.raw.lower() not in ("true", "false", ""):
        return f"{node.raw}, which YAML takes for {str(node.value).lower()} where it is not quoted"
    return node.raw or str(node.value)
