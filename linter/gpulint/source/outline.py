"""The keys of a file that cannot be read: enough to tell whose file it is."""

from __future__ import annotations

import os
import re

from .document import Document, SourceError
from .limits import MAX_BYTES
from .read import SUFFIXES, parse

_KEY = re.compile(r"""^([ \t]*)(?:["']?)([A-Za-z_][\w.-]*)(?:["']?)[ \t]*[:=](?=[ \t]|$)""")
_MOST = 2000
"""Keys that are looked at."""


def outline(path: str) -> Document | None:
    """The keys of a YAML, JSON or TOML file, one a line, by their indentation and without values; None for no file of
    these or for one without keys."""
    syntax = SUFFIXES.get(os.path.splitext(path)[1].lower(), "")
    if syntax not in ("yaml", "json", "toml"):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_BYTES).expandtabs(2).splitlines()
    except OSError:
        return None
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
