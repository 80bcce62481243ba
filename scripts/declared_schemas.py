"""The JSON Schemas of what gpulint itself reads and prints, made by pydantic of the classes that declare it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from gpulint.job.job import Job
from gpulint.report.data import shape
from gpulint.rules.rule_file import RuleTable
from gpulint.settings.keys import SettingsTable, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRAFT = "https://json-schema.org/draft/2020-12/schema"

CLOSED: dict[str, tuple[str, type]] = {
    "settings": ("gpulint.toml", SettingsTable),
    "rule": ("gpulint rule file", RuleTable),
    "report": (shape.REPORT, shape.Report),
    "estimate": (shape.ESTIMATE, shape.Estimates),
    "plan": (shape.PLAN, shape.Plans),
}
"""Schema -> its title and the class that declares it. Other keys than those of its fields are errors."""


def texts() -> Iterator[tuple[str, str]]:
    """The name of each schema and the text of its file."""
    yield "job", json.dumps(_job(), indent=1, sort_keys=True) + "\n"
    for name, (title, of) in CLOSED.items():
        spelling = spelled if of is SettingsTable else str
        yield name, json.dumps({"$schema": DRAFT, "title": title, **_closed(of, spelling)}, indent=2) + "\n"


def _job() -> dict[str, Any]:
    """`Job.json_schema()` with the annotations that `formats/keys.py` reads: unknown keys are dropped."""
    raw = Job.json_schema()
    parts = [raw, *raw.get("$defs", {}).values()]
    for part in parts:
        if "properties" in part:
            part["x-unknown-keys"] = "ignored"
        for field in part.get("properties", {}).values():
            field.pop("title", None)
    raw.get("$defs", {}).pop("Origin", None)
    raw.get("$defs", {}).pop("Span", None)
    head = {"$schema": DRAFT, "title": "gpulint job", "x-upstream": "job/v1", "x-coercion": "pydantic"}
    return {**raw, **head}


def _closed(of: type, spelling: Callable[[str], str]) -> dict[str, Any]:
    whole = TypeAdapter(of).json_schema()
    return _inlined(whole, whole.get("$defs", {}), spelling)


def _inlined(schema: dict[str, Any], parts: dict[str, Any], spelling: Callable[[str], str]) -> dict[str, Any]:
    """A schema with what it refers to in place, no titles, no other keys, and no null for a key that may be absent."""
    found = {**parts[schema["$ref"].rpartition("/")[2]], **schema} if "$ref" in schema else dict(schema)
    for name in ("$ref", "$defs", "title"):
        found.pop(name, None)
    if found.get("additionalProperties") is True:
        del found["additionalProperties"]
    if "properties" in found:
        properties = found.pop("properties")
        found["additionalProperties"] = False
        found["properties"] = {
            spelling(name): _inlined(_without_null(item), parts, spelling) for name, item in properties.items()
        }
    for name in ("items", "additionalProperties"):
        if isinstance(found.get(name), dict):
            found[name] = _inlined(found[name], parts, spelling)
    if "anyOf" in found:
        found["anyOf"] = [_inlined(item, parts, spelling) for item in found["anyOf"]]
    return found


def _without_null(item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a key that is left out rather than null, where None is its default."""
    if item.get("default", ...) is not None:
        return item
    rest = {name: value for name, value in item.items() if name not in ("default", "anyOf")}
    branches = [branch for branch in item.get("anyOf", ()) if branch != {"type": "null"}]
    return {**branches[0], **rest} if len(branches) == 1 else {**rest, **({"anyOf": branches} if branches else {})}
