"""The options that a script reads in a loop of its own: `case $1 in --nodes) NODES=$2; shift 2;; esac`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .words import Word

_SUBJECT = re.compile(r"""\bcase\s+["']?\$\{?1\}?["']?\s+in\b""")


class Option(NamedTuple):
    """An option that was given and what stands behind it; `value` None at the end of the line."""

    name: Word
    value: Word | None


def reads_options(text: str) -> bool:
    """Whether a command, as it is written, opens a `case` over the first argument."""
    return _SUBJECT.search(text) is not None


def given(patterns: Sequence[str], arguments: Sequence[Word]) -> Option | None:
    """The last argument that one of the patterns of a branch is, with the one behind it; None where none is."""
    for place in range(len(arguments) - 1, -1, -1):
        if arguments[place].text in patterns:
            return Option(arguments[place], arguments[place + 1] if place + 1 < len(arguments) else None)
    return None
