"""Snapshots on disk: a head that says what is in them, then one line an item, by key."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .items import Part
from .plain import Item

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Snapshot(NamedTuple):
    """Lines by key, and of which kinds and part they are."""

    kinds: frozenset[str]
    part: Part
    lines: dict[str, str]

    def of(self, kinds: frozenset[str], part: Part) -> dict[str, str]:
        """The lines of some kinds and a part."""
        return {
            key: line
            for key, line in self.lines.items()
            if key.partition(":")[0] in kinds and part.holds(key) and self.part.holds(key)
        }


def write(path: Path, kinds: Iterable[str], part: Part, items: Iterable[Item]) -> int:
    """Write a snapshot and return how many items it has. Equal items make equal bytes."""
    lines = {found.key: _line(found) for found in items}
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        file.write(f"{_text({'kinds': sorted(kinds), 'part': [*part]})}\n".encode())
        for key in sorted(lines):
            file.write(lines[key].encode())
    return len(lines)


def read(path: Path) -> Snapshot:
    """A snapshot, or all those of a folder as one. Raises ValueError where there is none, or several parts."""
    found = [_read(file) for file in (sorted(path.glob("*.jsonl.gz")) if path.is_dir() else [path])]
    if len({snapshot.part for snapshot in found}) != 1:
        raise ValueError(f"{path}: no snapshot, or snapshots of several parts")
    lines = {key: line for snapshot in found for key, line in snapshot.lines.items()}
    return Snapshot(frozenset().union(*(snapshot.kinds for snapshot in found)), found[0].part, lines)


def parsed(line: str) -> Item:
    """The item of a line."""
    value = json.loads(line)
    return Item(value["key"], value["facts"], value["words"])


_BEGIN = '{"key":'


def _read(path: Path) -> Snapshot:
    decode = json.JSONDecoder().raw_decode
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(next(file))
        lines = {decode(line, len(_BEGIN))[0]: line for line in file}
    return Snapshot(frozenset(head["kinds"]), Part(*head["part"]), lines)


def _line(item: Item) -> str:
    return f'{_BEGIN}{_text(item.key)},"facts":{_text(item.facts)},"words":{_text(item.words)}}}\n'


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
