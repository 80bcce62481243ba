"""Comparing version strings as far as behaviour depends on them."""

from __future__ import annotations


def older(version: str | None, than: str) -> bool:
    """Whether a stated version comes before `than`; an unstated one, or one without numbers, is current.

    Suffixes (`+cu124`, `rc1`) are cut, and `5` is `5.0`.
    """
    found = numbers(version or "")
    return bool(found) and _significant(found) < _significant(numbers(than))


def _significant(found: list[int]) -> list[int]:
    while found and not found[-1]:
        found = found[:-1]
    return found


def numbers(version: str) -> list[int]:
    """The leading numbers of a version: '2.4.1+cu121' -> [2, 4, 1], 'v0.11' -> [0, 11], '0.4.9.post3' [0, 4, 9, 3]."""
    found = []
    for part in version.strip().lstrip("v=<>~^ ").split("+")[0].split("."):
        digits, part = "", part.removeprefix("post")
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        found.append(int(digits))
        if len(digits) < len(part):
            break
    return found
