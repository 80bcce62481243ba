"""Comparing version strings as far as behaviour depends on them."""

from __future__ import annotations


def older(version: str | None, than: str) -> bool:
    """Whether a stated version comes before `than`; an unstated one is current. Suffixes (`+cu124`, `rc1`) are cut."""
    return bool(version) and numbers(version or "") < numbers(than)


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
