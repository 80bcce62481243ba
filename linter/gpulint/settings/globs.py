"""Globs of paths as settings write them, with the meaning that `.gitignore` gave them."""

from __future__ import annotations

import os
import re
from functools import lru_cache


def matches(path: str, glob: str) -> bool:
    """Whether `path` or a folder above it fits `glob`, both absolute or both relative to the same folder.

    `*` and `?` stay within one name, `**` crosses folders; a glob whose last folder is followed by `**/` fits a name
    at any depth.
    """
    return _pattern(glob.replace(os.sep, "/")).match(path.replace(os.sep, "/")) is not None


def anchored(glob: str, folder: str) -> str:
    """A glob of a settings file in `folder` as an absolute one; without a slash inside it fits names at any depth."""
    inner = glob.strip("/") if "/" in glob.strip("/") or glob.startswith("/") else f"**/{glob.strip('/')}"
    return f"{folder.rstrip(os.sep)}/{inner}"


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    parts = [_WILD.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", glob)]
    return re.compile("".join(parts) + r"(?:/.*)?$", re.DOTALL)


_WILD = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
