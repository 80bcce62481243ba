"""How tools spell dtypes, optimizers, attention kernels and pipeline schedules: one table each.

A tool that refuses some of the words says which, as a set; one that means something else by a word, or has words of its
own, says those. Words are compared in small letters.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..placeholders import is_whole_blank
from .kinds import Kind, Unsaid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    Table = Mapping[str, str]
    Precisions = Mapping[str, tuple[str, str | None]]

_TORCH = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32", "float64": "float64"}
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_C = {"half": "float16", "float": "float32"}
_PREFIXED = {f"torch.{word}": dtype for word, dtype in (*_TORCH.items(), *_SHORT.items(), *_C.items())}
_AMP = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}
_GGML = {"f16": "float16", "f32": "float32"}
_FLOAT8 = {"fp8": "float8", "float8": "float8", "float8_e4m3fn": "float8", "float8_e5m2": "float8"}

DTYPES: Table = MappingProxyType({**_TORCH, **_SHORT, **_C, **_PREFIXED, **_AMP, **_GGML, **_FLOAT8})
"""Word -> the Job's dtype."""

SHORT, C, PREFIXED = frozenset(_SHORT), frozenset(_C), frozenset(_PREFIXED)
"""`bf16`; `half`, `float`; `torch.bfloat16`: words that some tools refuse."""

AMP, GGML, FLOAT8 = frozenset(_AMP), frozenset(_GGML), frozenset(_FLOAT8)
"""Composer's `amp_bf16`, ggml's `f16`, 8-bit dtypes: words that few tools take."""

_BNB, _AO = "bitsandbytes.optim", "torchao.optim"
_AO_PROTOTYPE = "torchao.prototype.low_bit_optim"

OPTIMIZERS: Table = MappingProxyType(
    {
        "adamw": "adamw_torch", "adam": "adamw_torch", "sgd": "sgd", "adafactor": "adafactor", "adagrad": "adagrad",
        "rmsprop": "rmsprop", "muon": "muon",
        "torch.optim.adamw": "adamw_torch", "torch.optim.adam": "adamw_torch", "torch.optim.sgd": "sgd",
        "torch.optim.adagrad": "adagrad", "torch.optim.rmsprop": "rmsprop", "torch.optim.adafactor": "adafactor",
        f"{_BNB}.adamw": "adamw_bnb_32bit", f"{_BNB}.adamw8bit": "adamw_bnb_8bit", f"{_BNB}.adam8bit": "adamw_bnb_8bit",
        f"{_BNB}.pagedadamw": "paged_adamw_32bit", f"{_BNB}.pagedadamw32bit": "paged_adamw_32bit",
        f"{_BNB}.pagedadamw8bit": "paged_adamw_8bit", f"{_BNB}.pagedadam8bit": "paged_adamw_8bit",
        f"{_BNB}.lion": "lion_32bit", f"{_BNB}.lion8bit": "lion_8bit", f"{_BNB}.pagedlion8bit": "paged_lion_8bit",
        f"{_AO}.adamw8bit": "ao_adamw_8bit", f"{_AO}.adamw4bit": "ao_adamw_4bit",
        f"{_AO_PROTOTYPE}.adamw8bit": "ao_adamw_8bit", f"{_AO_PROTOTYPE}.adamw4bit": "ao_adamw_4bit",
        "flashoptim.flashadamw": "flash_adamw",
    }
)  # fmt: skip
"""Word, or path of a class, -> the Transformers spelling."""

ATTENTION: Table = MappingProxyType(
    {
        "sdpa": "sdpa", "eager": "eager", "flex": "flex", "flex_attention": "flex", "xformers": "xformers",
        "sage": "sage", "flash_attention_2": "flash_attention_2", "flash_attention_3": "flash_attention_3",
        "flash_attn": "flash_attention_2", "fa2": "flash_attention_2", "fa3": "flash_attention_3",
        "disabled": "eager", "te": "flash_attention_2",
        "kernels-community/flash-attn": "flash_attention_2", "kernels-community/flash-attn2": "flash_attention_2",
        "kernels-community/flash-attn3": "flash_attention_3", "kernels-community/vllm-flash-attn3": "flash_attention_3",
    }
)  # fmt: skip
"""Word -> the Job's attention."""

CLASSES: Table = MappingProxyType(
    {
        "adamw_8bit": "bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit": "bitsandbytes.optim.AdamW8bit",
        "paged_adamw_8bit": "bitsandbytes.optim.PagedAdamW8bit", "paged_adamw_32bit": "bitsandbytes.optim.PagedAdamW",
        "sgd": "torch.optim.SGD",
    }
)  # fmt: skip
"""The Job's optimizer -> the class that a change names by its path."""

COMPOSER: Precisions = MappingProxyType(
    {
        "amp_bf16": ("float32", "bfloat16"), "amp_fp16": ("float32", "float16"), "amp_fp8": ("float32", "bfloat16"),
        "fp32": ("float32", None), "bf16": ("bfloat16", None),
    }
)  # fmt: skip
"""Composer's word for a precision -> the dtype of the weights, and that of autocast."""

FABRIC: Precisions = MappingProxyType(
    {
        "bf16-mixed": ("float32", "bfloat16"), "16-mixed": ("float32", "float16"), "32-true": ("float32", None),
        "bf16-true": ("bfloat16", None), "16-true": ("float16", None), "32": ("float32", None),
    }
)  # fmt: skip
"""The same of Lightning Fabric."""

SCHEDULES: Table = MappingProxyType(
    {
        "1f1b": "1f1b", "interleaved1f1b": "1f1b", "gpipe": "gpipe", "loopedbfs": "gpipe", "zerobubble": "zero_bubble",
        "interleavedzerobubble": "zero_bubble", "zbvzerobubble": "zero_bubble", "dualpipev": "dualpipe",
    }
)  # fmt: skip
"""torch's name of a pipeline schedule -> the Job's."""


def dtype(
    *,
    refuses: Collection[str] = AMP | GGML | FLOAT8,
    own: Table | None = None,
    written: Table | None = None,
) -> Kind:
    """A dtype. `written` is what the tool calls a Job's dtype where that is not torch's name."""
    return _kind("a dtype", DTYPES, refuses, own, written)


def optimizer(
    *, refuses: Collection[str] = (), own: Table | None = None, written: Table | None = None, any_other: bool = False
) -> Kind:
    """An optimizer, by a word or the path of its class; `any_other`: one that is not known by its class's name."""
    kind = _kind("an optimizer", OPTIMIZERS, refuses, own, written)
    if not any_other:
        return kind

    def read(value: Any) -> Any:
        found = kind.read(value)
        return value.strip().rpartition(".")[2].lower() if found is Unsaid.OTHER else found

    return replace(kind, read=read)


def attention(
    *, refuses: Collection[str] = (), own: Table | None = None, written: Table | None = None, any_other: bool = False
) -> Kind:
    """An attention kernel; `any_other`: one that is not known by its own name, which on the hub may have a revision."""
    kind = _kind("an attention kernel", ATTENTION, refuses, own, written)
    if not any_other:
        return kind

    def read(value: Any) -> Any:
        name = value.split("@", 1)[0].split(":", 1)[0].strip() if isinstance(value, str) else value
        found = kind.read(name)
        return name if found is Unsaid.OTHER else found

    def write(value: Any) -> Any:
        said = kind.write(value)
        return value if isinstance(value, str) and said is Unsaid.OTHER else said

    return replace(kind, read=read, write=write)


def schedule(*, refuses: Collection[str] = (), own: Table | None = None) -> Kind:
    """A pipeline schedule, with underscores in its name or not."""
    kind = _kind("a pipeline schedule", SCHEDULES, refuses, own, None)
    return replace(kind, read=lambda value: kind.read(value.replace("_", "") if isinstance(value, str) else value))


def _kind(name: str, table: Table, refuses: Collection[str], own: Table | None, written: Table | None) -> Kind:
    words = {**{word: value for word, value in table.items() if word not in refuses}, **(own or {})}
    first: dict[str, str] = {}
    for word, value in words.items():
        if word == value or value not in first:
            first[value] = word
    first |= {word: value for value, word in (own or {}).items()} | (dict(written) if written else {})

    def read(value: Any) -> Any:
        if not isinstance(value, str) or not value.strip():
            return Unsaid.WRONG
        return words.get(value.strip().lower(), Unsaid.OTHER)

    def write(value: Any) -> Any:
        return first.get(value, Unsaid.OTHER) if isinstance(value, str) else Unsaid.OTHER

    return Kind(name, read, write, is_whole_blank, samples=tuple(first))


DTYPE = dtype()
"""Torch's names, short ones, C's, each with `torch.` before it or not."""


_BESIDE_FP8 = {"bfloat16": "bf16"}
MIXED_PRECISION = dtype(refuses=DTYPES.keys() - {"bf16", "fp16"}, own={"fp8": "bfloat16"}, written=_BESIDE_FP8)
"""accelerate's `mixed_precision`, by the dtype that it works with (fp8 keeps bf16 autocast around its kernels)."""
