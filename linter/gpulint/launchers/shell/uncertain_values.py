"""Which variables no test of a script is decided by: only the run knows what they hold by then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .words import Word

_USED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_BEGIN = re.compile(r"(?<![\w-])do(?![\w-])")
_END = re.compile(r"(?<![\w-])done(?![\w-])")
_SET = re.compile(r"(?<![\w$-])([A-Za-z_]\w*)(?:\+?=|\+\+|--)|(?<![\w-])for\s+\(*\s*([A-Za-z_]\w*)")
_ENVIRONMENT = re.compile(r"activate$|bashrc$|profile|conda|modules?(?:\.sh)?$")
"""Sourced files that set up programs, not the script's own variables."""


class Doubts:
    """Variables that a loop sets anew in each pass, and those that something unread may have set."""

    def __init__(self, text: str) -> None:
        begin, ends = _BEGIN.search(text), [match.start() for match in _END.finditer(text)]
        self._names: set[str] = set()
        self._looped: set[str] = set()
        self._first = begin.start() if begin else len(text)
        if begin and ends:
            head = text.rfind("\n", 0, self._first) + 1
            self._looped = {name for pair in _SET.findall(text[head : ends[-1]]) for name in pair if name}

    def over(self, written: str, here: int) -> bool:
        """Whether what is written at a place of the script uses one of them."""
        names = set(_USED.findall(written))
        return bool(names & self._names) or (here >= self._first and bool(names & self._looped))

    def set(self, names: Iterable[str]) -> None:
        """Step over an assignment, behind which the script's own value holds."""
        self._names.difference_update(names)

    def command(self, words: Sequence[Word], variables: Iterable[str], *, unread: bool) -> None:
        """Step over a command that sets variables to what nobody reads; `unread`: a sourced file that is not here."""
        texts = [word.text for word in words]
        if texts[0] == "eval" or (unread and not _ENVIRONMENT.search(texts[1])):
            self._names.update(variables)
        elif texts[0] in ("read", "mapfile", "readarray", "getopts"):
            self._names.update(text for text in texts[1:] if text.isidentifier())
        elif texts[:2] == ["printf", "-v"]:
            self._names.update(texts[2:3])
