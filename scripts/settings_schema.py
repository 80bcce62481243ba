"""`schemas/settings.json` and the tables of `docs/settings.md`, from the keys of `linter/gpulint/settings/keys.py`."""

from __future__ import annotations

import json
import re
from typing import Any

from gpulint.settings.keys import KEYS, SIZE, Key
from gpulint.settings.severity import SEVERITIES

_STRINGS = {"type": "array", "items": {"type": "string"}}
_SOME = {**_STRINGS, "minItems": 1}
_KINDS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "size": {"type": "string", "pattern": rf"^\s*{SIZE}\s*$", "examples": ["2 GiB", "5%"]},
    "count": {"type": "integer", "minimum": 1},
    "flag": {"type": "boolean"},
    "strings": _STRINGS,
    "versions": {"type": "object", "additionalProperties": {"type": "string"}},
    "globs": {"type": "object", "additionalProperties": _STRINGS},
    "severities": {"type": "object", "additionalProperties": {"enum": [*SEVERITIES]}},
}
_WORDS = {
    "string": "string",
    "size": "size",
    "count": "whole number",
    "flag": "true or false",
    "strings": "list of strings",
    "versions": "table of strings",
    "globs": "table of lists",
    "severities": "table of severities",
}
MARK = re.compile(r"(<!-- keys -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def _property(key: Key) -> dict[str, Any]:
    return {"description": key.meaning, **_KINDS[key.kind], **({"enum": list(key.choices)} if key.choices else {})}


def schema() -> str:
    """The JSON Schema of a settings file."""
    layered = {key.name: _property(key) for key in KEYS.values() if key.layered}
    override = {"files": {"description": "Globs of the paths that these settings are for.", **_SOME}, **layered}
    suppression = {
        "file": {"description": "Glob of the files.", "type": "string"},
        "rules": {"description": "Rules to silence there.", **_SOME},
        "key": {"description": "Only at and below this dotted key.", "type": "string"},
        "reason": {"description": "Why.", "type": "string"},
    }
    properties = {
        "extend": {"description": "Settings file that this one builds on, relative to it.", "type": "string"},
        **{key.name: _property(key) for key in KEYS.values()},
        "overrides": {"description": "Settings for some paths.", **_tables(override, ["files"])},
        "suppressions": {"description": "Findings to silence.", **_tables(suppression, ["file", "rules"])},
    }
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpulint.toml",
        "description": "The settings file, also `[tool.gpulint]` of pyproject.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return json.dumps(whole, indent=2) + "\n"


def _tables(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    item = {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
    return {"type": "array", "items": item}


def page(text: str) -> str:
    """`docs/settings.md` with its table of keys made anew."""
    rows = ["| key | takes | meaning |", "|---|---|---|"]
    for key in KEYS.values():
        takes = ", ".join(f"`{choice}`" for choice in key.choices) or _WORDS[key.kind]
        star = " *" if key.layered else ""
        rows.append(f"| `{key.name}`{star} | {takes} | {key.meaning} |")
    table = "\n".join(rows) + "\n"
    return MARK.sub(lambda match: match[1] + table + match[2], text)
