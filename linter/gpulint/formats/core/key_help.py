"""What schemas say of a key, for people who write it: type, default, values, what took its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .coercion import type_text
from .keys import branches, is_old, object_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .keys import Held, JsonObject

Step = str | int
"""A key of a mapping, or a place in a list."""

NO_DEFAULT = object()


class KeyHelp(NamedTuple):
    """One key as its schema has it.

    `name` is its spelling there, `type` is "" where the schema does not say; `default` is NO_DEFAULT where it is not
    known; `values` are those of an enumeration, and both booleans. `old` says in words what became of it, "" for a
    key in use.
    """

    name: str
    type: str
    default: Any
    values: tuple[Any, ...]
    upstream: str
    old: str
    mapping: bool


def help_of(held: Held, steps: Sequence[Step]) -> KeyHelp | None:
    """The key at the end of `steps`, which lead down from the mapping; None where the schema does not know it."""
    if not steps or not isinstance(steps[-1], str):
        return None
    part = _part(held, steps[:-1])
    return _keys(held, part).get(folded(steps[-1])) if part is not None else None


def keys_at(held: Held, steps: Sequence[Step]) -> tuple[KeyHelp, ...]:
    """The keys that the mapping at `steps` takes, those in use before those that are gone."""
    part = _part(held, steps)
    found = _keys(held, part).values() if part is not None else ()
    return tuple(sorted(found, key=lambda item: (bool(item.old), item.name)))


def folded(key: str) -> str:
    """A key in the spelling that options with dashes and those with underscores share."""
    return key.replace("-", "_")


def _part(held: Held, steps: Sequence[Step]) -> JsonObject | None:
    part = held.part
    for step in steps:
        found = _item(held, part) if isinstance(step, int) else _child(held, part, step)
        if found is None:
            return None
        part = found
    return part


def _item(held: Held, part: JsonObject) -> JsonObject | None:
    items = (branch.get("items") for branch in branches(held.schema, part))
    return next((item for item in items if isinstance(item, dict)), None)


def _child(held: Held, part: JsonObject, key: str) -> JsonObject | None:
    shape = object_shape(held.schema, part)
    for name in (key, folded(key), key.replace("_", "-")):
        if name in shape.properties:
            return shape.properties[name]
    return shape.values


def _keys(held: Held, part: JsonObject) -> dict[str, KeyHelp]:
    return {
        folded(name): _help(held, name, child) for name, child in object_shape(held.schema, part).properties.items()
    }


def _help(held: Held, name: str, part: JsonObject) -> KeyHelp:
    shapes = [*branches(held.schema, part)]
    described = any("type" in shape or "enum" in shape for shape in shapes)
    return KeyHelp(
        name,
        type_text(shapes) if described else "",
        _default(part, shapes),
        tuple(dict.fromkeys(_values(shapes))),
        held.upstream,
        _old(part),
        any(shape.get("type") == "object" or "properties" in shape for shape in shapes),
    )


def _default(part: JsonObject, shapes: list[JsonObject]) -> Any:
    return next((shape["default"] for shape in (part, *shapes) if "default" in shape), NO_DEFAULT)


def _values(shapes: list[JsonObject]) -> Iterator[Any]:
    for shape in shapes:
        yield from (value for value in shape.get("enum", ()) if value is not None)
        types = shape.get("type")
        if "boolean" in (types if isinstance(types, list) else [types]):
            yield from ("true", "false")


def _old(part: JsonObject) -> str:
    if not is_old(part):
        return ""
    gone = f"removed: {part['x-removed']}" if "x-removed" in part else "deprecated"
    now = part.get("x-replacement") or part.get("x-instead")
    return f"{gone}; now {now}" if now else gone
