"""What a test of a script says where all that it looks at is known: `[[ -n "$LENGTH" ]]`, `[ $GPUS -gt 1 ]`."""

from __future__ import annotations

import operator
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .words import Word

_CLOSING = {"[": "]", "[[": "]]", "test": ""}

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}

_WHOLE = re.compile(r"[+-]?\d{1,18}")
_PATTERN = re.compile(r"[*?\[\\]")


def verdict(words: Sequence[Word]) -> bool | None:
    """Whether `[ ... ]`, `[[ ... ]]` or `test ...` holds; None where only the run knows, or for another command.

    `-n`, `-z`, `=`, `==`, `!=` and the comparisons of whole numbers, one of them alone.
    """
    name = words[0].text if words else ""
    if name not in _CLOSING:
        return None
    closing = _CLOSING[name]
    inner = list(words[1:])
    if closing:
        if not inner or inner[-1].text != closing:
            return None
        inner.pop()
    if not all(word.known for word in inner):
        return None
    texts = [word.text for word in inner]
    negated = bool(texts) and texts[0] == "!"
    found = _holds(texts[1:] if negated else texts, doubled=name == "[[")
    return found if found is None or not negated else not found


def matches(subject: str, pattern: Word) -> bool | None:
    """Whether the pattern of a `case` takes its subject; None where the pattern is not known."""
    if not pattern.known:
        return None
    if "\\" in pattern.text or "[" in pattern.text:
        return None
    return fnmatchcase(subject, pattern.text)


def _holds(texts: list[str], *, doubled: bool) -> bool | None:
    if len(texts) == 1 and doubled and texts[0] in ("-n", "-z"):
        return texts[0] == "-z"
    if len(texts) == 2 and texts[0] in ("-n", "-z"):
        return bool(texts[1]) == (texts[0] == "-n")
    if len(texts) != 3:
        return None
    left, sign, right = texts
    if sign in ("=", "==", "!="):
        if doubled and _PATTERN.search(right):
            return None
        return (left == right) == (sign != "!=")
    if sign in _NUMBERS and _WHOLE.fullmatch(left) and _WHOLE.fullmatch(right):
        return _NUMBERS[sign](int(left), int(right))
    return None
