"""The hub ids that gpulint knows, with their configs.

`catalogue.tsv` holds one id a line, sorted by its lower-case form; `catalogue.jsonl` one distinct config a line. Both
are searched as bytes, and only the lines that are asked for are parsed. `scripts/models.py catalogue` writes them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from .tables import find_line, read_data

LEGACY_OWNERS = ("openai-community", "google-bert", "google-t5", "distilbert", "FacebookAI")
"""Organisations to which the hub redirects the ids of its first models, which had no owner: `gpt2-xl`."""

_loaded: dict[str, bytes] = {}


class CatalogueRow(NamedTuple):
    """One hub id.

    parameters   exact count of the model that `config` describes; None where its architecture has no table
    confidence   `A` a published config.json or dimensions that hit an exact published total, `B` an independent source
                 or an alias of such a model, `C` an alias by name only
    base         the id whose dimensions were taken, "" for a primary entry;  source  one word on where they come from
    auto_class   the Transformers loader without `AutoModelFor`;  dtype  of the checkpoint, None when not known
    key          the line of `catalogue.jsonl`
    """

    id: str
    model_type: str
    parameters: int | None
    confidence: str
    base: str
    auto_class: str
    dtype: str | None
    source: str
    key: str


def find(name: str) -> CatalogueRow | None:
    """The row of a hub id, upper and lower case alike; of ids that differ in case only, the one written alike.

    An id without an owner is looked for under `LEGACY_OWNERS`.
    """
    if "/" not in name:
        return next((row for owner in LEGACY_OWNERS if (row := find(f"{owner}/{name}"))), None)
    lower = name.lower().encode() + b"\t"
    content = _content("catalogue.tsv")
    line = find_line(content, lower + name.encode() + b"\t") or find_line(content, lower)
    return _row(line) if line is not None else None


def of_leaf(leaf: str) -> list[CatalogueRow]:
    """The rows whose last name is `leaf` (lower case), whoever owns them."""
    content, word = _content("catalogue.tsv"), b"/" + leaf.encode() + b"\t"
    rows, at = [], content.find(word)
    while at >= 0:
        begin = content.rfind(b"\n", 0, at) + 1
        if b"\t" not in content[begin:at]:
            rows.append(_row(content[begin : content.find(b"\n", at)]))
        at = content.find(word, at + 1)
    return rows


def config_of(row: CatalogueRow) -> dict[str, Any]:
    """The `config.json` fields of a row, a fresh mapping at each call."""
    line = find_line(_content("catalogue.jsonl"), b'{"key":' + json.dumps(row.key).encode() + b",")
    config: dict[str, Any] = json.loads(line)["config"] if line else {}
    config["model_type"] = row.model_type
    if row.dtype and not config.get("torch_dtype") and not config.get("dtype"):
        config["torch_dtype"] = row.dtype
    return config


def search(query: str) -> list[CatalogueRow]:
    """The rows whose id contains every word of `query`, in alphabetical order."""
    words = [word.encode() for word in query.lower().split()]
    rows = []
    for line in _content("catalogue.tsv").splitlines():
        lower = line[: line.index(b"\t")]
        if all(word in lower for word in words):
            rows.append(_row(line))
    return rows


def nearest(name: str, count: int = 3) -> list[str]:
    """Ids that a misspelt one may have meant, best first."""
    from difflib import SequenceMatcher

    from ..source.closest import closest

    wanted = name.lower()
    lines = _content("catalogue.tsv").splitlines()
    ids = {line[: line.index(b"\t")].decode(): line for line in lines}
    close = closest(wanted, ids, count, 0.8)
    if len(close) < count:
        leaf = wanted.rpartition("/")[2]
        by_leaf: dict[str, str] = {}
        for known in ids:
            by_leaf.setdefault(known.rpartition("/")[2], known)
        for match in closest(leaf, by_leaf, count, 0.85):
            if by_leaf[match] not in close:
                close.append(by_leaf[match])
    close.sort(key=lambda known: -SequenceMatcher(None, wanted, known).ratio())
    return [_row(ids[known]).id for known in close[:count]]


def _row(line: bytes) -> CatalogueRow:
    _, name, model_type, parameters, confidence, base, auto_class, dtype, source, key = line.decode().split("\t")
    count = int(parameters) if parameters else None
    return CatalogueRow(name, model_type, count, confidence, base, auto_class, dtype or None, source, key)


def _content(name: str) -> bytes:
    if name not in _loaded:
        _loaded[name] = read_data(name)
    return _loaded[name]
