"""Reading one architecture table without reading the others.

`architectures.jsonl` holds one table a line, each line starting with its model type; the line is found by a bytes
search and only that line is parsed.
"""

from __future__ import annotations

import json
import os
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_tables: dict[str, dict[str, Any] | None] = {}
_text: list[bytes] = []


def find_table(model_type: str) -> dict[str, Any] | None:
    """The architecture table of a model type, None where there is none."""
    if model_type not in _tables:
        line = find_line(_content(), b'{"model_type":' + json.dumps(model_type).encode() + b",")
        _tables[model_type] = json.loads(line) if line else None
    return _tables[model_type]


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
    if not _text:
        _text.append(read_data("architectures.jsonl"))
    return _text[0]
