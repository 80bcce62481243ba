"""Trees held against JSON Schemas: jsonschema decides and finds what is wrong, here it gets its place and its words.

jsonschema takes longer to import than a check of a file takes, so a tree that plainly fits never meets it.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jsonschema import ValidationError

    from .node import Node

Schema = dict[str, Any]

MAX_SHOWN = 60
"""Characters of a wrong value that a message repeats."""

MAX_LISTED = 30
"""Known words that a message lists."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
          "array": "a list", "object": "a mapping", "null": "null"}  # fmt: skip
_MANY = {"string": "text", "integer": "whole numbers", "number": "numbers", "array": "lists", "object": "mappings"}
_UNDERSTOOD = {
    "type", "enum", "properties", "required", "additionalProperties", "items", "anyOf", "minimum", "minItems",
    "maxItems", "pattern", "maxLength", "description", "examples", "title", "default", "$schema", "$id",
}  # fmt: skip
"""What `plainly_fits` knows; anything else in a schema is left to jsonschema."""


class Fault(NamedTuple):
    """A place that is not what the schema says, and what it must be. A key that `lacks` is often another misspelt."""

    node: Node
    reason: str
    lacks: bool = False


@cache
def load_schema(name: str) -> Schema:
    """A schema that is shipped in `schemas/`, by the file's name."""
    folder: str = import_module("..schemas", __package__).__path__[0]
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        schema: Schema = json.load(file)
    return schema


def first_fault(root: Node, schema: Schema, whole: str, table: str = "mapping") -> Fault | None:
    """The first place where a tree is not what a schema says. `whole` names the tree, `table` what its syntax calls a
    mapping."""
    if plainly_fits(root.plain(), schema):
        return None
    return next(iter(faults(root, root.plain(), schema, whole, table)), None)


def plainly_fits(value: Any, schema: Schema) -> bool:
    """Whether a value fits beyond doubt; False is no verdict."""
    if not schema.keys() <= _UNDERSTOOD:
        return False
    if "anyOf" in schema and not any(plainly_fits(value, branch) for branch in schema["anyOf"]):
        return False
    kind = schema.get("type")
    if kind is not None and not (isinstance(kind, str) and _is(value, kind)):
        return False
    if "enum" in schema and not (isinstance(value, str) and value in schema["enum"]):
        return False
    if isinstance(value, str):
        bound = schema.get("maxLength")
        return (bound is None or len(value) <= bound) and re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, int | float):
        return bool(value >= schema.get("minimum", value))
    if isinstance(value, list):
        fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return fits and ("items" not in schema or all(plainly_fits(item, schema["items"]) for item in value))
    return not isinstance(value, dict) or _keys_fit(value, schema)


def faults(root: Node, value: Any, schema: Schema, whole: str, table: str = "mapping") -> Iterable[Fault]:
    """All places of `root` at which `value`, what it amounts to, is not what a schema says; lacking keys come last."""
    from jsonschema import Draft202012Validator, validators

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, item: _is(item, "integer"))
    validator: Any = validators
    validator = validator.extend(Draft202012Validator, type_checker=checker)(schema)
    found = [fault for error in validator.iter_errors(value) for fault in _told(root, error, whole, table)]
    return sorted(found, key=lambda fault: (fault.lacks, fault.node.span.start))


def place(root: Node, path: Iterable[int | str]) -> tuple[Node, str, bool]:
    """The node at a path, its dotted key, and whether it is an item there; parts that no node has are passed over."""
    node, keys, is_item = root, [], False
    for part in path:
        if isinstance(part, str):
            child = node.get(part)
        else:
            child = node.items()[part] if 0 <= part < len(node.items()) else None
        if child is not None:
            node, is_item = child, isinstance(part, int)
            keys += [part] if isinstance(part, str) else []
    return node, ".".join(keys), is_item


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?` of the nearest, `; known are ...` where none is near and they are few."""
    from difflib import get_close_matches

    known = list(known)
    found = get_close_matches(word[:80], known, 1, 0.6)
    if found:
        return f"; did you mean {found[0]}?"
    return f"; known are {', '.join(known)}" if len(known) <= MAX_LISTED else ""


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)


def _keys_fit(value: dict[Any, Any], schema: Schema) -> bool:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if not all(name in value for name in schema.get("required", ())):
        return False
    return all(
        isinstance(name, str) and (name in known or others is not False) and plainly_fits(item, known.get(name, others))
        for name, item in value.items()
    )


def _told(root: Node, error: ValidationError, whole: str, table: str) -> Iterator[Fault]:
    """What an error says, at its place; of the branches of `anyOf` the one that the value was meant for counts."""
    node, key, is_item = place(root, error.absolute_path)
    name = f"each item of {key or whole}" if is_item else key or whole
    schema: Schema = error.schema  # type: ignore[assignment]
    if error.validator == "anyOf":
        wrong = {each.relative_schema_path[0] for each in error.context or () if _is_type_of_branch(each)}
        inner = [each for each in error.context or () if each.relative_schema_path[0] not in wrong]
        if inner:
            for each in inner:
                yield from _told(root, each, whole, table)
            return
    if error.validator == "additionalProperties":
        known = schema.get("properties", {})
        for entry in node.entries():
            if entry.key.value not in known:
                word = str(entry.key.value)
                yield Fault(entry.key, f"unknown key {word[:MAX_SHOWN]}{did_you_mean(word, known)}")
    elif error.validator == "required":
        lacking = [each for each in schema["required"] if node.get(each) is None]
        yield Fault(node, f"{name} needs {', '.join(lacking)}", lacks=True)
    else:
        told = _expected(schema, str(error.validator))
        told += "" if error.validator in ("maxLength", "minItems", "maxItems") else _found(node, schema)
        yield Fault(node, f"{name} must be {told}".replace(" mapping", f" {table}"))


def _is_type_of_branch(error: ValidationError) -> bool:
    """Whether a branch of `anyOf` is for values of another type."""
    return error.validator in ("type", "const") and len(error.relative_path) == 0


def _expected(schema: Schema, failed: str = "") -> str:
    """What a schema takes, in words, with the bound that `failed`."""
    if "anyOf" in schema:
        return " or ".join(_expected(branch) for branch in schema["anyOf"] if branch.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(str(word) for word in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "object")
    inner = schema.get("items" if kind == "array" else "additionalProperties") if kind in ("array", "object") else None
    text = _WORDS[kind]
    if isinstance(inner, dict) and "enum" in inner:
        text += f" of {_expected(inner)}"
    elif isinstance(inner, dict) and inner.get("type") in _MANY:
        text += f" of {_MANY[inner['type']]}"
    if "examples" in schema:
        return f"{text} like " + ", ".join(str(each) for each in schema["examples"])
    bound = "minimum" if schema.get("minimum", 0) > 0 else failed
    return text + _BOUNDS.get(bound, "").format(schema.get(bound))


_BOUNDS = {
    "minimum": " of {} or more", "maxLength": " of at most {} characters", "minItems": " with at least {} items",
    "maxItems": " with at most {} items", "pattern": " that matches {}",
}  # fmt: skip


def _found(node: Node, schema: Schema) -> str:
    if node.is_mapping and schema.get("type") == "string":
        return ", not a mapping; text that holds `: ` is quoted"
    shown = "a mapping" if node.is_mapping else "a list" if node.is_sequence else node.raw or str(node.value)
    near = did_you_mean(str(node.value), schema["enum"]) if "enum" in schema and isinstance(node.value, str) else ""
    short = shown if len(shown) <= MAX_SHOWN else shown[: MAX_SHOWN - 3] + "..."
    return f", not {short}" + (near if near.startswith("; did") else "")
