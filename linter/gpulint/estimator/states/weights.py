"""Weights and adapters as terms: whole on a rank, or its share of what several divide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..terms import Term
from . import storage
from .buffers.stable_embedding import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .parameter import Parameter, Ranks

_PARTS = {"base": "weights", "buffer": "weights", "adapter": "adapter", "copy": "adapter"}
_NOUNS = {
    "base": "parameters",
    "buffer": "buffer elements",
    "adapter": "adapter parameters",
    "copy": "parameters of trained copies (modules_to_save)",
}
_DTYPES = "dtype of the weights as loaded"
_BLOCKS = "c10/cuda/CUDACachingAllocator.cpp round_size"
_PACKED = "packed weights with their scales and code tables (packings.json)"


def weights(found: Sequence[Parameter], over: Ranks | None = None) -> list[Term]:
    """One line for each dtype and part: bytes x elements (/ ranks, fewer for experts that are divided already)."""
    groups: dict[tuple[str, bool, str, str, int], list[Parameter]] = {}
    for item in found:
        dtype, by = "" if item.packed else _dtype(item), over.of(item) if over is not None else 1
        groups.setdefault((item.part, item.packed, dtype, label(item), by), []).append(item)
    lines = []
    for (part, packed, dtype, said, by), items in groups.items():
        if packed:
            lines += _packed(part, items, said, over, by)
            continue
        count, whole = sum(item.elements for item in items), sum(item.allocated for item in items)
        size = whole if over is None else over.size(items)
        formula = f"{_width(dtype):g} B ({dtype}) x {count:,} {_NOUNS[part]}" + (
            "" if over is None else f" / {by} GPUs"
        )
        rest = size - int(_width(dtype) * count) if over is None else 0
        lines.append(Term(_PARTS[part], formula, size - rest, _DTYPES, said))
        if rest:
            lines.append(Term(_PARTS[part], f"{rest:,} B", rest, _BLOCKS, "each tensor in blocks of 512 B"))
    return lines


def _packed(part: str, items: Sequence[Parameter], said: str, over: Ranks | None, by: int) -> list[Term]:
    """Codes, and beside them their scales and tables: whole on each GPU, or in one line where they are divided too."""
    count, whole = sum(item.elements for item in items), sum(item.allocated for item in items)
    codes, share, where = sum(item.copies * item.pieces[0] for item in items), "", ""
    size, beside = codes, whole - codes
    if over is not None:
        beside = 0 if over.scales else sum(item.copies * storage.total(item.pieces[1:]) for item in items)
        codes = whole if over.scales else codes
        size, share, where = over.size(items) - beside, f" / {by} GPUs", ", whole on each GPU"
    formula = f"{codes / max(1, count):.7g} B x {count:,} packed {_NOUNS[part]}{share}"
    lines = [Term(_PARTS[part], formula, size, _PACKED, said)]
    if beside:
        lines.append(Term(_PARTS[part], f"{beside:,} B", beside, _PACKED, f"scales and tables{where}"))
    return lines


def _dtype(item: Parameter) -> str:
    """Masks are bytes whatever the weights are."""
    return "bool" if item.role == "mask" else item.dtype


def _width(dtype: str) -> float:
    return 1 if dtype == "bool" else storage.dtype_bytes(dtype)
