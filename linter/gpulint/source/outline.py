"""The keys of a file that cannot be read: enough to tell whose file it is."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .document import Document, SourceError
from .limits import MAX_BYTES
from .read import SUFFIXES, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = re.compile(r"""^([ \t]*)(?:["']?)([A-Za-z_][\w.-]*)(?:["']?)[ \t]*[:=](?=[ \t]|$)""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MOST = 2000
"""Keys that are looked at."""


def outline(path: str) -> Document | None:
    """The keys of a YAML, JSON or TOML file, one a line, without values: by their indentation, in JSON by their braces.

    None for no file of these or for one without keys.
    """
    syntax = SUFFIXES.get(os.path.splitext(path)[1].lower(), "")
    if syntax not in ("yaml", "json", "toml"):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            read = file.read(MAX_BYTES).expandtabs(2).splitlines()
    except OSError:
        return None
    lines = list(_by_braces(read)) if syntax == "json" else read
    keys = [match for match in map(_KEY.match, lines) if match][:_MOST]
    inside: list[int] = []
    text: list[str] = []
    for match in keys:
        while inside and inside[-1] >= len(match[1]):
            inside.pop()
        text.append(f"{' ' * len(inside)}{match[2]}:")
        inside.append(len(match[1]))
    try:
        found = parse("\n".join(text), path, "yaml")
    except SourceError:
        return None
    return found._replace(syntax=syntax) if found.roots and found.root.is_mapping else None


def _by_braces(lines: list[str]) -> Iterator[str]:
    """The lines of a JSON text as deep as the braces that are open before them, however they are indented."""
    depth = 0
    for line in lines:
        yield " " * depth + line.lstrip()
        marks = _STRING.sub("", line)
        depth = max(0, depth + marks.count("{") + marks.count("[") - marks.count("}") - marks.count("]"))
