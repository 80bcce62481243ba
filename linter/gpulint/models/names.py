"""What a repository's or folder's name says: of which model it is a copy, and how its weights are stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .catalogue import of_leaf

if TYPE_CHECKING:
    from typing import Any

    from .catalogue import CatalogueRow

_GENERIC = re.compile(r"(model|checkpoint(-\d+)?|final|latest|merged|hf|snapshots|main|[0-9a-f]{32,40}|\d+(\.\d+)?b)")
"""Names of folders that say nothing of themselves: their parent's names the model."""

_DEPTH = 3
"""Folders of a generic name, one in the other, that are looked through: `Yi-6B/hf/checkpoint-500`."""

QUANTIZED_NAMES = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("gptq", "gptq"), ("awq", "awq"), ("gguf", "gguf"), ("exl2", "exl2"),
    ("bnb-4bit", "bnb-nf4"), ("bnb-8bit", "bnb-int8"), ("nf4", "bnb-nf4"), ("fp8", "fp8"), ("w8a8", "int8"),
    ("w4a16", "gptq"), ("w8a16", "int8"), ("mxfp8", "fp8"), ("int4", "int4"), ("int8", "int8"), ("4bit", "int4"),
    ("8bit", "int8"), ("4bits", "int4"), ("8bits", "int8"), ("fp4", "nvfp4"),
)  # fmt: skip
"""Quantisation methods by the words that hub authors put into repository names, more specific words first."""

UNPACKED_WORDS = ("dequantized", "unquantized")
"""Words that take back those before them: of Gemma's `-qat-q4_0-unquantized` nothing is packed yet."""

PLAIN_WORDS = ("bf16", "fp16", "fp32", *UNPACKED_WORDS)
"""Words that say the opposite: the weights are stored unpacked."""

_STORAGE = re.compile(
    r"(?<=.)-((unsloth-)?bnb-([48]-?bit|nf4)|gptq|awq|nvfp4(-qad)?|mxfp4|mxfp8|fp8-kv|fp8-static(-pertensor)?|fp[48]|nf4"
    r"|bf16|fp16|fp32|dequantized|dynamic|block|(quantized\.)?w\d+a\d+|w-mxfp4-a-fp8|int[48](-auto-?round)?|[48]-?bits?"
    r"|(quantized\.)?g\d+|\d+g|quark|hf|qat|q4_0|unquantized|ct)(?=-|$)"
)
"""Words of a repository's name that say how the weights of the model named by the others are stored."""

_CONVERTED = re.compile(r"(?<=.)[-_](mcore|megatron|torch[-_]dist|dist[-_]ckpt|nemo|dcp|[tpe]p[-_]?\d{1,3})(?=[-_]|$)")
"""Words of a folder's name that say for which framework, and for which degrees, a checkpoint was converted."""

_CACHED = re.compile(r"(?:^|/)models--([\w.-]+?)(?:--([\w.-]+))?(?=/|$)")
"""A repository's folder in the Hugging Face cache."""


def cached_id(reference: str) -> str | None:
    """The hub id whose folder in the Hugging Face cache, `models--ORG--NAME/snapshots/...`, a path names."""
    cached = _CACHED.search(reference)
    return "/".join(filter(None, cached.groups())) if cached is not None else None


def namesake(reference: str) -> CatalogueRow | None:
    """The model of the catalogue whose name a folder or another owner's repository bears.

    `/data/models/Llama-2-7b-hf` and `LLM-Research/Llama-2-7b-hf` bear that of `meta-llama/Llama-2-7b-hf`. ModelScope
    writes `___` for a dot. None where no last name is alike, or the models of that name differ in their parameters.
    """
    named = cached_id(reference) or reference
    leaf = named.rstrip("/").rpartition("/")[2].replace("___", ".").lower()
    return _agreed(of_leaf(leaf))


def stored_copy(name: str) -> CatalogueRow | None:
    """The model of which a repository's name says that it is a copy stored otherwise (`TheBloke/Mistral-7B-v0.1-GPTQ`).

    That is the one whose last name is left when the words of `_STORAGE` are taken off, or that with `-hf` or `-bf16`
    behind it; None where there is none, or several that differ in their parameters.
    """
    leaf = name.rstrip("/").rpartition("/")[2].lower()
    bare = _STORAGE.sub("", _CONVERTED.sub("", leaf))
    if bare == leaf or ("/" not in name and _CONVERTED.search(leaf) is None):
        return None
    return _agreed([row for known in (bare, f"{bare}-hf", f"{bare}-bf16") for row in of_leaf(known)])


def bears_a_name(path: str) -> bool:
    """Whether the name of a folder or of a repository tells a model of the catalogue."""
    return (namesake(path) or stored_copy(path)) is not None


def _agreed(rows: list[CatalogueRow]) -> CatalogueRow | None:
    """The best known of several ids of one model."""
    if len({row.parameters for row in rows}) != 1:
        return None
    return min(rows, key=lambda row: (row.confidence, bool(row.base), row.id))


def named_quantization(name: str) -> str | None:
    """The quantisation method that a repository's name states, None without one."""
    words = f"-{name.rpartition('/')[2].lower().replace('_', '-').replace('-quantized.', '-')}-"
    if any(f"-{word}-" in words for word in UNPACKED_WORDS):
        return None
    return next((method for word, method in QUANTIZED_NAMES if f"-{word}-" in words), None)


_SERIES = re.compile(r"(neuralmagic|redhatai|nm-testing)/(?!meta-llama-3).*-quantized\.w(\d)a(?:8|16)")
"""What llm-compressor's authors publish; of Llama 3 and 3.1 some are older than its format."""


def published_quantization(name: str) -> dict[str, Any] | None:
    """The `quantization_config` of a series whose publishers hold to one scheme; None for other names.

    Source: the recipes on their model cards: W4A16 in groups of 128, W8A8 and W8A16 with a scale a channel, towers and
    head left out.
    """
    match = _SERIES.fullmatch(name.lower())
    if match is None:
        return None
    bits = int(match[2])
    weights = {"num_bits": bits, "type": "int", "symmetric": True, **({"group_size": 128} if bits < _BYTE else {})}
    ignore = ["lm_head", "re:.*(visual|vision|multi_modal)"]
    return {"quant_method": "compressed-tensors", "ignore": ignore, "config_groups": {"group_0": {"weights": weights}}}


_BYTE = 8


def named_plain(name: str) -> bool:
    """Whether a repository's name states that its weights are not packed."""
    words = f"-{name.rpartition('/')[2].lower().replace('_', '-')}-"
    return named_quantization(name) is None and any(f"-{word}-" in words for word in PLAIN_WORDS)


def meant_by(path: str) -> list[str]:
    """The names that a folder of a generic name may stand for, a guess: `/x/llama/7B` for `llama-7B`."""
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    found: list[str] = []
    for _ in range(_DEPTH):
        if len(parts) < 2 or not _GENERIC.fullmatch(parts[-1].lower()):
            break
        found += [parts[-2], f"{parts[-2]}-{parts[-1]}"]
        parts.pop()
    return found
