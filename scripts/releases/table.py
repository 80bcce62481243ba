"""Which releases take a key: spans of releases from what each release that was read takes.

A span is the first release that takes the key and the first that no longer does; `-` is the first release that was
read, and none is no end. A key that all take has an empty text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .packages import Groups

FEWEST = 3
"""A release with less than one in so many of the keys of the next one has a layout that was not understood."""

BEGINNING = "-"


def understood(read: Sequence[tuple[str, set[str]]]) -> list[tuple[str, set[str]]]:
    """The releases without the first ones whose layout was not understood. Raises ValueError for a later one."""
    start = 0
    for index in range(1, len(read)):
        if len(read[index - 1][1]) * FEWEST < len(read[index][1]):
            start = index
    for (release, keys), (_, before) in zip(read[start + 1 :], read[start:], strict=False):
        if len(keys) * FEWEST < len(before):
            raise ValueError(f"{release} has {len(keys)} keys, the release before {len(before)}")
    return list(read[start:])


def spans(read: Sequence[tuple[str, set[str]]]) -> dict[str, str]:
    """The spans of every key that any release takes. A section whose keys a release does not name says nothing."""
    sections = [{key.rpartition(".")[0] for key in keys if "." in key} for _, keys in read]
    found: dict[str, str] = {}
    for key in sorted({key for _, keys in read for key in keys}):
        parent = key.rpartition(".")[0]
        text: list[str] = []
        has = False
        first = True
        for (release, keys), named in zip(read, sections, strict=True):
            if parent and parent in keys and parent not in named:
                continue
            if (key in keys) != has:
                has = not has
                text.append(BEGINNING if first else release)
            first = False
        found[key] = "" if text == [BEGINNING] else " ".join(text)
    return found


def groups_of(read: Mapping[str, Groups]) -> dict[str, tuple[str, dict[str, str]]]:
    """By group the first release that was understood, and the spans from it on."""
    names = sorted({name for groups in read.values() for name in groups})
    own = {name: understood([*_group(read, name)]) for name in names}
    return {name: (found[0][0], spans(found)) for name, found in own.items()}


def _group(read: Mapping[str, Groups], name: str) -> Iterator[tuple[str, set[str]]]:
    for release, groups in read.items():
        if name in groups:
            yield release, groups[name]
