"""Reading one architecture table without reading the others.

`architectures.jsonl` holds one table a line, each line starting with its model type; the line is found by a bytes
search and only that line is parsed. `aliases.json` names the table of model types that have none of their own, and
the family of those whose code is another's.
"""

from __future__ import annotations

import json
import os
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_tables: dict[str, dict[str, Any] | None] = {}
_loaded: dict[str, Any] = {}


def find_table(model_type: str) -> dict[str, Any] | None:
    """The architecture table of a model type, None where there is none."""
    if model_type not in _tables:
        line = find_line(_content(), b'{"model_type":' + json.dumps(model_type).encode() + b",")
        table = json.loads(line) if line else None
        if table is not None and "extends" in table:
            table = _extended(table)
        _tables[model_type] = table
    return _tables[model_type]


def table_name(model_type: str) -> str:
    """The table of a model type that has none of its own, else the type itself."""
    found: str = aliases()["tables"].get(model_type, family_of(model_type))
    return found


def family_of(model_type: str) -> str:
    """The model type whose modelling code a type shares, else the type itself."""
    found: str = aliases()["families"].get(model_type, model_type)
    return found


def aliases() -> dict[str, Any]:
    """`aliases.json`: `families` and `tables` by model type, and `remote`, rules for configs of remote code."""
    if "aliases" not in _loaded:
        _loaded["aliases"] = json.loads(read_data("aliases.json"))
    data: dict[str, Any] = _loaded["aliases"]
    return data


def find_by_class(name: str) -> str | None:
    """The model type whose table was taken from the Transformers class `name`."""
    content = _content()
    at = content.find(b'"class":' + json.dumps(name).encode() + b",")
    if at < 0:
        return None
    begin = content.rfind(b"\n", 0, at) + 1
    found: str = json.loads(content[begin : content.index(b",", begin)].partition(b":")[2])
    return found.partition(":")[0]


def model_types() -> tuple[str, ...]:
    """Every model type that has a table, sorted."""
    return tuple(json.loads(line)["model_type"] for line in _content().splitlines())


def find_line(content: bytes, start: bytes) -> bytes | None:
    """The line of `content` that begins with `start`, without its end."""
    if content.startswith(start):
        begin = 0
    else:
        begin = content.find(b"\n" + start) + 1
        if begin == 0:
            return None
    end = content.find(b"\n", begin)
    return content[begin : end if end >= 0 else len(content)]


def read_data(name: str) -> bytes:
    """The bytes of a data file of this folder."""
    with open(os.path.join(_FOLDER, name), "rb") as file:
        return file.read()


def _content() -> bytes:
    if "tables" not in _loaded:
        _loaded["tables"] = read_data("architectures.jsonl")
    content: bytes = _loaded["tables"]
    return content


def _extended(table: dict[str, Any]) -> dict[str, Any] | None:
    base = find_table(table["extends"])
    if base is None:
        return None
    merged = {**base, **table}
    for key in ("alias", "defaults", "let", "derive"):
        merged[key] = {**base.get(key, {}), **table.get(key, {})}
    return merged
