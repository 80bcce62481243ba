"""The values that a variable takes over a loop: the words of `for NAME in ...`, with the braces that bash expands."""

from __future__ import annotations

import re
from itertools import islice, product
from typing import TYPE_CHECKING

from .words import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_VALUES = 8
"""Values of a loop that are told apart, each of which is estimated; of more nothing is known."""

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")


def over(name: str, listed: Sequence[Word]) -> Word | None:
    """The variable in one pass: the one word of the list, or one of several; None where only the run knows which."""
    if len(listed) == 1 and not _BRACES.search(listed[0].text):
        return listed[0]
    if not all(word.known for word in listed):
        return None
    found = (text for word in listed for text in expanded(word.text))
    texts = tuple(dict.fromkeys(islice(found, MAX_VALUES + 1)))
    if not 1 < len(texts) <= MAX_VALUES:
        return None
    written = f"${name}"
    return Word(written, (-1,) * len(written), known=False, may_be=texts)


def expanded(text: str) -> Iterable[str]:
    """A word's texts after brace expansion (bash manual 3.5.1): `a{1,2}`, `{2048..8192..2048}`; else the word."""
    parts = _BRACES.split(text)
    choices: list[Sequence[str]] = []
    for number, part in enumerate(parts):
        if number % 2 == 0:
            choices.append((part,))
        elif (match := _RANGE.fullmatch(part)) is not None:
            choices.append(_range(int(match[1]), int(match[2]), abs(int(match[3] or 1)) or 1))
        else:
            choices.append(part.split(",") if "," in part else (f"{{{part}}}",))
    return map("".join, product(*choices))


def _range(first: int, last: int, step: int) -> Sequence[str]:
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [str(value) for value in values[: MAX_VALUES + 1]]
