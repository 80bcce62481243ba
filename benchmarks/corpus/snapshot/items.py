"""The items of each kind, and all of them or a part told over several processes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import contextmanager
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.accuracy.case import SHARED, Excluded
from benchmarks.accuracy.sources import everything
from benchmarks.corpus.stated import StatedLayers

from . import told
from .package import all_rules, search
from .plain import Item, failure, item, numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("corpus", "examples", "cases", "catalogue")
CHUNK = 8
"""Items that a process takes at once."""
TASKS = 200
"""Chunks after which a process is replaced, so that what it remembers does not fill the memory."""


class Part(NamedTuple):
    """Every `of`-th item by the hash of its key, the `number`-th share of them."""

    number: int = 1
    of: int = 1

    def holds(self, key: str) -> bool:
        """Whether the item is in this part."""
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % self.of == self.number - 1


class Source:
    """The items of one kind by their keys."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder.resolve()

    @cached_property
    def things(self) -> dict[str, Any]:
        """What each key stands for."""
        pairs: Iterator[tuple[str, Any]] = getattr(self, f"_{self.kind}")()
        return {f"{self.kind}:{key}": thing for key, thing in pairs}

    @cached_property
    def layers(self) -> told.FixedLayers:
        """The hardware of the files of the corpus."""
        return told.FixedLayers(StatedLayers(self.folder))

    def told(self, key: str) -> Any:
        """All that is said of an item."""
        thing = self.things[key]
        if self.kind == "corpus":
            return told.corpus_file(thing, self.layers)
        if self.kind == "examples":
            return told.example(*thing)
        if self.kind == "catalogue":
            return told.model(thing)
        return told.excluded(thing) if isinstance(thing, Excluded) else told.case(thing)

    def _corpus(self) -> Iterator[tuple[str, Any]]:
        index = json.loads((self.folder / "INDEX.json").read_text(encoding="utf-8"))
        yield from ((entry["path"], entry["path"]) for entry in index)

    def _examples(self) -> Iterator[tuple[str, Any]]:
        for rule in all_rules():
            for number in range(len(rule.source["examples"])):
                yield f"{rule.id} {number + 1:02}", (rule, number)

    def _cases(self) -> Iterator[tuple[str, Any]]:
        scored, excluded = everything()
        yield from numbered((f"{case.group} {case.id} {case.figure}", case) for case in scored).items()
        yield from numbered((f"{row.group} {row.id} excluded", row) for row in excluded).items()

    def _catalogue(self) -> Iterator[tuple[str, Any]]:
        rows = sorted(search(""), key=lambda row: (row.key, row.id))  # those of one config one after another
        yield from ((row.id, row.id) for row in rows)


def written(kind: str, folder: Path, part: Part, jobs: int) -> Iterator[Item]:
    """The items of a kind, in no order, from `jobs` processes."""
    source = Source(kind, folder)
    with _standing(source) as places:
        keys = [key for key in source.things if part.holds(key)]
        _work.append((source, places))
        try:
            if jobs <= 1:
                yield from map(_item, keys)
                return
            with get_context("fork").Pool(jobs, maxtasksperchild=TASKS) as pool:
                yield from pool.imap_unordered(_item, keys, CHUNK)
        finally:
            _work.pop()


_work: list[tuple[Source, dict[str, str]]] = []
"""What the processes of a run work on; they are forked when it is here."""


def _item(key: str) -> Item:
    source, places = _work[-1]
    try:
        return item(key, source.told(key), places)
    except Exception as error:  # of the snapshot itself
        return item(key, {"snapshot": failure(error)}, places)


@contextmanager
def _standing(source: Source) -> Iterator[dict[str, str]]:
    """Work in the corpus, or in an empty folder; what stands for the folders of this machine."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(source.folder if source.kind == "corpus" else empty)
        try:
            yield {
                str(source.folder): "",
                os.path.realpath(empty): "",
                os.path.realpath(SHARED): "<shared>/",
                str(SHARED): "<shared>/",
                str(Path(__file__).resolve().parents[3]): "<checkout>/",
            }
        finally:
            os.chdir(before)
