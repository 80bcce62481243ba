"""The known words that are most like a given one, as `difflib.get_close_matches` finds them, for long lists."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS, _TIMES = 64, 4
"""Letters are told apart modulo 64, and counted up to 4."""


def closest(word: str, known: Iterable[str], count: int, cutoff: float) -> list[str]:
    """At most `count` of the known words whose ratio to `word` is at least `cutoff`, best first.

    Of M letters that two words have in common the ratio is 2 M / (both lengths). A letter that the other word has not
    is not in common, so most words are left out before difflib compares any; none that it would return is.
    """
    from difflib import get_close_matches

    letters, length = _letters(word), len(word)
    candidates: list[str] = []
    for other in known:
        total = length + len(other)
        if 2.0 * min(length, len(other)) < cutoff * total:
            continue
        theirs = _letters(other)
        common = min(length - (letters & ~theirs).bit_count(), len(other) - (theirs & ~letters).bit_count())
        if 2.0 * common >= cutoff * total:
            candidates.append(other)
    return get_close_matches(word, candidates, count, cutoff) if candidates else []


@lru_cache(1 << 15)
def _letters(word: str) -> int:
    """A bit for the first to fourth time that a word has each letter."""
    bits = 0
    for letter in word:
        bit = 1 << ord(letter) % _KINDS * _TIMES
        for _ in range(_TIMES):
            if not bits & bit:
                bits |= bit
                break
            bit <<= 1
    return bits
