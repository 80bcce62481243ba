"""The hub ids that gpulint knows, with their configs.

`catalogue.tsv` holds one id a line, sorted by its lower-case form; `catalogue.jsonl` one distinct config a line. Both
are searched as bytes, and only the lines that are asked for are parsed. `scripts/models.py catalogue` writes them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .tables import find_line, read_data

QUANTIZED_NAMES = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("gptq", "gptq"), ("awq", "awq"), ("gguf", "gguf"), ("exl2", "exl2"),
    ("bnb-4bit", "bnb-nf4"), ("bnb-8bit", "bnb-int8"), ("nf4", "bnb-nf4"), ("fp8", "fp8"), ("w8a8", "int8"),
    ("w4a16", "gptq"), ("int4", "int4"), ("int8", "int8"), ("4bit", "int4"), ("8bit", "int8"), ("fp4", "nvfp4"),
)  # fmt: skip
"""Quantisation methods by the words that hub authors put into repository names, more specific words first."""

PLAIN_WORDS = ("bf16", "fp16", "fp32", "dequantized")
"""Words that say the opposite: the weights are stored unpacked."""

_STORAGE = re.compile(
    r"(?<=.)-((unsloth-)?bnb-[48]-?bit|gptq|awq|nvfp4|mxfp4|mxfp8|fp[48]|nf4|bf16|fp16|fp32|dequantized|dynamic|block"
    r"|w\d+a\d+|w-mxfp4-a-fp8|int[48]|[48]-?bit|(quantized\.)?g\d+|\d+g|quark|hf)(?=-|$)"
)
"""Words of a repository's name that say how the weights of the model named by the others are stored."""

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


def stored_copy(name: str) -> CatalogueRow | None:
    """The model of which a repository's name says that it is a copy stored otherwise (`TheBloke/Mistral-7B-v0.1-GPTQ`).

    That is the one whose last name is left when the words of `_STORAGE` are taken off, or that with `-hf` behind it;
    None where there is none, or several that differ in their parameters.
    """
    leaf = name.rpartition("/")[2].lower()
    bare = _STORAGE.sub("", leaf)
    if "/" not in name or bare == leaf:
        return None
    rows = [row for known in (bare, f"{bare}-hf") for row in _of_leaf(known)]
    if len({row.parameters for row in rows}) != 1:
        return None
    return min(rows, key=lambda row: (row.confidence, bool(row.base), row.id))


def _of_leaf(leaf: str) -> list[CatalogueRow]:
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
    from difflib import SequenceMatcher, get_close_matches

    wanted = name.lower()
    lines = _content("catalogue.tsv").splitlines()
    ids = {line[: line.index(b"\t")].decode(): line for line in lines}
    close = get_close_matches(wanted, ids, count, 0.8)
    if len(close) < count:
        leaf = wanted.rpartition("/")[2]
        by_leaf: dict[str, str] = {}
        for known in ids:
            by_leaf.setdefault(known.rpartition("/")[2], known)
        for match in get_close_matches(leaf, by_leaf, count, 0.85):
            if by_leaf[match] not in close:
                close.append(by_leaf[match])
    close.sort(key=lambda known: -SequenceMatcher(None, wanted, known).ratio())
    return [_row(ids[known]).id for known in close[:count]]


def named_quantization(name: str) -> str | None:
    """The quantisation method that a repository's name states, None without one."""
    words = f"-{name.rpartition('/')[2].lower().replace('_', '-')}-"
    return next((method for word, method in QUANTIZED_NAMES if f"-{word}-" in words), None)


def named_plain(name: str) -> bool:
    """Whether a repository's name states that its weights are not packed."""
    words = f"-{name.rpartition('/')[2].lower().replace('_', '-')}-"
    return named_quantization(name) is None and any(f"-{word}-" in words for word in PLAIN_WORDS)


def _row(line: bytes) -> CatalogueRow:
    _, name, model_type, parameters, confidence, base, auto_class, dtype, source, key = line.decode().split("\t")
    count = int(parameters) if parameters else None
    return CatalogueRow(name, model_type, count, confidence, base, auto_class, dtype or None, source, key)


def _content(name: str) -> bytes:
    if name not in _loaded:
        _loaded[name] = read_data(name)
    return _loaded[name]
