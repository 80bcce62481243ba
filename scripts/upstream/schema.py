"""What the generators share: the parts of a schema, the keys of former releases, and how a file is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

ANYTHING: Json = {}
SWITCH: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
TEXT: Json = {"type": "string"}
MAPPING: Json = {"type": "object"}

_HEAD = ("$schema", "title", "x-upstream", "x-unknown-keys", "x-coercion", "x-placeholder", "x-plugins", "type")
_ROWS = ("properties", "$defs", "x-components")


def section(properties: Json, unknown: str = "") -> Json:
    """A mapping whose unknown keys upstream refuses or ignores; without a word on them any are allowed."""
    return {"type": "object", **({"x-unknown-keys": unknown} if unknown else {}), "properties": properties}


def whole(title: str, properties: Json, unknown: str, coercion: str = "yaml", **more: Any) -> Json:
    """A schema of a whole file; `more` are further annotations (`x_placeholder=...`) and `definitions`."""
    definitions = more.pop("definitions", {})
    made: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **({"x-unknown-keys": unknown} if unknown else {}),
        "x-coercion": coercion,
        "type": "object",
        "properties": properties,
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    if definitions:
        made["$defs"] = dict(sorted(definitions.items()))
    return made


def add_former(made: Json, before: Json, names: Json, dropped: Callable[[str], str]) -> int:
    """Keep the top keys that the schema before had and upstream has no longer, as removed ones; how many there are.

    `dropped` says which release dropped a key, `vllm 0.10.0`. `names` says what took a removed key's place
    (`replaced`: key -> key) or does its work now (`hints`: key -> words).
    """
    properties = made["properties"]
    added = 0
    for key, part in before.get("properties", {}).items():
        if key in properties:
            continue
        reason = f"taken before {dropped(key)}"
        hint = names.get("hints", {}).get(key)
        successor = names.get("replaced", {}).get(key)
        properties[key] = {
            "deprecated": True,
            "x-removed": reason + (f"; {hint}" if hint else ""),
            **{word: part[word] for word in ("x-classes", "x-harmless") if word in part},
            **({"x-replacement": successor} if successor in properties else {}),
        }
        added += 1
    return added


def add_known(made: Json, before: Json) -> int:
    """Keep every key that the schema before had, at any depth; how many there are.

    For tools whose configs are kept beside the release that they ran with.
    """
    added = 0
    parts = [(made, before)]
    parts += [(part, before.get("$defs", {}).get(name, {})) for name, part in made.get("$defs", {}).items()]
    while parts:
        new, old = parts.pop()
        for key, part in old.get("properties", {}).items():
            if key not in new.setdefault("properties", {}) or new["properties"][key] == {} != part:
                new["properties"][key] = part
                added += 1
            elif "properties" in part and "properties" in new["properties"][key]:
                parts.append((new["properties"][key], part))
    former = {name: part for name, part in before.get("$defs", {}).items() if name not in made.get("$defs", {})}
    while named := [name for name in former if f'"#/$defs/{name}"' in dump(made)]:
        made["$defs"] = dict(sorted({**made.get("$defs", {}), **{name: former.pop(name) for name in named}}.items()))
    return added


def written(value: Json) -> str:
    """JSON with one property a line, so that a new upstream version shows as a short diff."""
    lines: list[str] = []
    for key in [*(key for key in _HEAD if key in value), *(key for key in value if key not in _HEAD)]:
        if key in _ROWS:
            rows = ",\n".join(f"    {dump(name)}: {dump(item)}" for name, item in value[key].items())
            lines.append(f"  {dump(key)}: {{\n{rows}\n  }}")
        else:
            lines.append(f"  {dump(key)}: {dump(value[key])}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def dump(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def table(value: Json) -> str:
    """A table as JSON with one row a line, two levels deep."""
    parts = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            rows = ",\n".join(f"    {dump(name)}: {dump(row)}" for name, row in item.items())
            parts.append(f"  {dump(key)}: {{\n{rows}\n  }}")
        elif isinstance(item, list) and any(isinstance(row, (list, dict)) for row in item):
            rows = ",\n".join(f"    {dump(row)}" for row in item)
            parts.append(f"  {dump(key)}: [\n{rows}\n  ]")
        else:
            parts.append(f"  {dump(key)}: {dump(item)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
