"""Which commands of a script run in one go, so that what they start in the background runs together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPENING = frozenset({"if", "case", "for", "select", "while", "until", "{"})
_PARTING = frozenset({"elif", "else", ";;"})
_CLOSING = frozenset({"fi", "esac", "done", "}"})
_ENDING = re.compile(r"^(?:wait|scancel|exit)$|kill|stop|clean|shut|terminat|^(?:docker|podman) rm$")
"""Commands, and names of functions, that wait for programs or end them."""


class Stretches:
    """Which commands run in one go: those of one block, with nothing between that waits for programs or ends them."""

    def __init__(self) -> None:
        self._open: list[object] = [object()]

    @property
    def current(self) -> object:
        """The stretch of the command that is read."""
        return self._open[-1]

    def keyword(self, word: str) -> None:
        """Step over a word that opens, parts or closes a block."""
        if word in _OPENING:
            self._open.append(object())
        elif word in _PARTING:
            self._open[-1] = object()
        elif word in _CLOSING and len(self._open) > 1:
            self._open.pop()

    def command(self, words: Sequence[str]) -> None:
        """Step over a command: what waits for programs or ends them begins every open block anew."""
        if words[0] in _OPENING:
            self.keyword(words[0])
        elif _ENDING.search(" ".join(words[: 2 if words[0] in ("docker", "podman") else 1])):
            self._open = [object() for _ in self._open]
