"""Command substitutions whose output follows from their words: `$(basename "$MODEL")`, `$(which swift)`."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def output(words: Sequence[str]) -> str | None:
    """What `basename`, `dirname`, `which`, `command -v`, or `pwd` behind `cd` prints; None for every other command.

    `which` and `command -v` print the path of a program, whose name stands for it here.
    """
    program, *rest = words or ("",)
    if program == "basename" and len(rest) in (1, 2) and not rest[0].startswith("-"):
        name = posixpath.basename(rest[0].rstrip("/")) or rest[0]
        suffix = rest[1] if len(rest) == 2 else ""
        return name[: -len(suffix)] if suffix and name.endswith(suffix) and name != suffix else name
    if program == "dirname" and len(rest) == 1 and not rest[0].startswith("-"):
        return posixpath.dirname(rest[0].rstrip("/")) or "."
    if program == "cd":
        folders = [word for word in rest if word not in ("--", "-P")]
        return posixpath.normpath(folders[0]) if len(folders) == 1 and folders[0] != "-" else None
    if program == "which" and len(rest) == 1 and not rest[0].startswith("-"):
        return rest[0]
    if [program, *rest[:1]] == ["command", "-v"] and len(rest) == 2:
        return rest[1]
    return None
