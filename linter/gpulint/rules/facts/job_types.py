"""The types of Job fields in words, and whether a value is of one: for rule files and their documentation."""

from __future__ import annotations

import types
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...job.job import Job

_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", dict: "mapping"}


@cache
def job_types() -> dict[str, Any]:
    """Every dotted Job field with its type; null is always one more value."""
    return dict(_fields(Job, ""))


def _fields(cls: type, prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(cls).items():
        if prefix + name == "origins":
            continue
        kind = _without_null(hint)
        found.append((prefix + name, kind))
        if is_dataclass(kind):
            found += _fields(kind, f"{prefix}{name}.")  # type: ignore[arg-type]
    return found


def _without_null(hint: Any) -> Any:
    """The type without None."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    left = tuple(part for part in get_args(hint) if part is not types.NoneType)
    return left[0] if len(left) == 1 else Union[left]  # noqa: UP007 - made of a tuple


def type_text(kind: Any) -> str:
    """A type for people: `whole number`, "`full` or `none`", "list of text"."""
    origin = get_origin(kind)
    if is_dataclass(kind):
        return "true if the job has one"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(part) for part in get_args(kind))
    if origin is list:
        return f"list of {type_text(get_args(kind)[0])}s".replace("texts", "text")
    return _WORDS.get(origin or kind, "any")


def accepts(kind: Any, value: Any) -> bool:
    """Whether a literal may be set where a field of that type is."""
    origin = get_origin(kind)
    if value is None:
        return True
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, types.UnionType):
        return any(accepts(part, value) for part in get_args(kind))
    if origin is list:
        return isinstance(value, list) and all(accepts(get_args(kind)[0], item) for item in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if is_dataclass(kind):
        return False
    base = origin or kind
    return isinstance(value, base) if isinstance(base, type) else True
