"""Globs of paths as settings write them, with the meaning that `.gitignore` gave them.

Ours and not pathspec's, whose regular expressions backtrack: six stars in a glob take half a minute on a name of
80 characters, and a settings file is untrusted. Here a glob takes at most its names times the names of the path, and
`fnmatch` translates a name so that no star is tried twice.
"""

from __future__ import annotations

import os
import re
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple


class _Glob(NamedTuple):
    """A glob taken apart: a pattern for each of its names, None for `**`; `folder` fits what lies in a folder only."""

    names: tuple[re.Pattern[str] | None, ...]
    folder: bool
    takes_back: bool


def matches(path: str, *globs: str) -> bool:
    """Whether `path` or a folder above it fits the globs, all absolute; the last one that fits decides.

    `*` and `?` stay within one name, `[ab]` is one character, `**` stands for any number of folders. A glob that ends
    in `/` fits folders only, one that begins with `!` takes back what an earlier one took.
    """
    names = path.replace(os.sep, "/").split("/")
    for text in reversed(globs):
        glob = _glob(text)
        if _fits(names, glob):
            return not glob.takes_back
    return False


def anchored(glob: str, folder: str) -> str:
    """A glob of a settings file in `folder` as an absolute one; without a slash inside it fits names at any depth."""
    taken_back, inner = glob.startswith("!"), glob.removeprefix("!").replace(os.sep, "/")
    depth = "" if "/" in inner.rstrip("/") else "**/"
    above = re.sub(r"([*?[])", r"[\1]", folder.replace(os.sep, "/").rstrip("/"))
    return f"{'!' * taken_back}{above}/{depth}{inner.lstrip('/')}"


def _fits(names: list[str], glob: _Glob) -> bool:
    """`places` are the numbers of names of the path that the names of the glob so far can have used up."""
    places = {0}
    for name in glob.names:
        if name is None:
            places = set(range(min(places), len(names) + 1))
        else:
            places = {place + 1 for place in places if place < len(names) and name.match(names[place])}
        if not places:
            return False
    return min(places) < len(names) if glob.folder else True


@lru_cache(maxsize=4096)
def _glob(text: str) -> _Glob:
    inner = text.removeprefix("!").replace(os.sep, "/")
    names = inner.rstrip("/").split("/")
    if names[-1] == "**":  # `a/**` fits what is in `a`, not `a` itself
        names.append("*")
    patterns = (None if name == "**" else re.compile(translate(name.replace("[^", "[!"))) for name in names)
    return _Glob(tuple(patterns), inner.endswith("/"), text.startswith("!"))
