"""A tree held against `schemas/rule.json`, by hand: jsonschema is slow to import and has no lines.

Understands what that schema uses: type, enum, pattern, maxLength, maxItems, required, properties, additionalProperties,
items, anyOf.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .rule import RuleError

if TYPE_CHECKING:
    from ..source.node import Node

MAX_TEXT, MAX_ITEMS = 20_000, 200
"""Where the schema states no bound."""

_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "boolean": (bool,)}
_WORDS = {"string": "text", "integer": "a whole number", "boolean": "true or false", "array": "a list",
          "object": "a mapping"}  # fmt: skip


@cache
def rule_schema() -> dict[str, Any]:
    """The schema of rule files."""
    folder: str = import_module("..schemas", __package__).__path__[0]
    with open(os.path.join(folder, "rule.json"), encoding="utf-8") as file:
        schema: dict[str, Any] = json.load(file)
    return schema


def check_shape(node: Node, schema: dict[str, Any], path: str, key: str = "a rule") -> None:
    """Raise RuleError at the first place where `node` is not what `schema` says."""
    if "anyOf" in schema:
        fitting = [branch for branch in schema["anyOf"] if _is(node, branch)]
        if not fitting:
            raise _error(path, node, f"{key} must be {_wanted(schema)}")
        schema = fitting[0]
    if not _is(node, schema):
        colon = "; quote text that contains `: `" if schema.get("type") == "string" and node.is_mapping else ""
        raise _error(path, node, f"{key} must be {_wanted(schema)}{colon}")
    if "enum" in schema and node.value not in schema["enum"]:
        raise _error(path, node, f"{key} must be {_wanted(schema)}, not {node.raw}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], node.value):
        like = ", ".join(schema.get("examples", ())) or schema["pattern"]
        raise _error(path, node, f"{key} must look like {like}, not {node.raw}")
    if node.is_scalar and len(str(node.value)) > schema.get("maxLength", MAX_TEXT):
        raise _error(path, node, f"{key} may have at most {schema.get('maxLength', MAX_TEXT)} characters")
    if len(node.items()) > schema.get("maxItems", MAX_ITEMS):
        raise _error(path, node, f"{key} may have at most {schema.get('maxItems', MAX_ITEMS)} items")
    for item in node.items():
        check_shape(item, schema.get("items", {}), path, f"an item of {key}")
    if node.is_mapping:
        _check_keys(node, schema, path, key)


def _check_keys(node: Node, schema: dict[str, Any], path: str, key: str) -> None:
    known: dict[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    for entry in node.entries():
        name = entry.key.value
        if not isinstance(name, str):
            raise _error(path, entry.key, "a key must be text")
        if name in known:
            check_shape(entry.value, known[name], path, name)
        elif others is False:
            raise _error(path, entry.key, f"unknown key {name}{_did_you_mean(name, known)}")
        else:
            check_shape(entry.value, others, path, name)
    missing = [name for name in schema.get("required", ()) if node.get(name) is None]
    if missing:
        raise _error(path, node, f"{key} needs {', '.join(missing)}")


def _is(node: Node, schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if kind is None:
        return "enum" not in schema or node.is_scalar
    if kind in ("array", "object"):
        return node.is_sequence if kind == "array" else node.is_mapping
    return (
        node.is_scalar and isinstance(node.value, _TYPES[kind]) and (kind == "boolean") == isinstance(node.value, bool)
    )


def _wanted(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_wanted(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    return _WORDS.get(schema.get("type", ""), "a value")


def _did_you_mean(name: str, known: dict[str, Any]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name[:80], list(known), 1, 0.6)
    return f"; did you mean {found[0]}?" if found else f"; known keys: {', '.join(known)}"


def _error(path: str, node: Node, reason: str) -> RuleError:
    return RuleError(path, reason, node.span.line, node.span.column)
