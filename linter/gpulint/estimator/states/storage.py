"""Bytes that one tensor takes in GPU memory: by its dtype, or packed by a quantisation method."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...source.tables import read_table
from ...units import DTYPE_BYTES
from ..allocator.allocator import block_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Quantization

_PACKINGS = read_table(__file__, "packings.json")


def dtype_bytes(dtype: str) -> float:
    """Bytes of one element; raises KeyError for a dtype that `units.DTYPE_BYTES` lacks."""
    return DTYPE_BYTES[dtype]


class Packing(NamedTuple):
    """A row of `packings.json`: how a quantisation method stores a weight of n elements, [out, in].

    bits          of one packed element
    group         elements that share a scale; 0 for one scale an output row
    scale         bytes of a scale;  zero_bits  bits of a zero point
    feature       bytes for each input feature (GPTQ's g_idx)
    tables        bytes of the code tables each weight brings
    what          `linear` (weights of nn.Linear), `decoder` (those outside towers) or `experts` (the fused tensors)
    casts         whether k-bit preparation upcasts what the method leaves unpacked
    source        where the layout is defined
    """

    bits: float
    group: int
    scale: float
    zero_bits: float
    feature: int
    tables: tuple[int, ...]
    what: str
    casts: bool
    source: str


def packing(quantization: Quantization) -> Packing | None:
    """The layout of a quantisation method with the job's bits and group size; None for an unknown method.

    `gguf-q4_k_m` and the like are found under `gguf-q4_k`; a method given only by its bits (`hqq`, `quanto`)
    takes them from the job.
    """
    table = _PACKINGS
    name = quantization.method.lower()
    row = table.get(name)
    while row is None and any(mark in name for mark in "-_"):
        name = name[: max(name.rfind("-"), name.rfind("_"))]
        row = table.get(name)
    if row is None:
        return None
    group = row.get("group", 0)
    if quantization.group_size is not None and row.get("group_from_job", False):
        group = max(0, quantization.group_size)
    bits = row["bits"]
    if quantization.bits is not None and row.get("bits_from_job", False):
        bits = quantization.bits
    return Packing(
        bits,
        group,
        row.get("scale", 0),
        bits if row.get("zeros") == "packed" else row.get("zero_bits", 0),
        row.get("feature", 0),
        tuple(row.get("tables", ())),
        row.get("what", "linear"),
        row.get("casts", False),
        row["source"],
    )


def packed_pieces(shape: tuple[int, ...], quantization: Quantization) -> tuple[int, ...]:
    """The tensors, in bytes, that one packed weight of `shape` consists of.

    bitsandbytes 4-bit, n elements: n/2 of codes, one absmax per 64; plain: 4 B each; with double quantisation
    1 B each, and 4 B per 256 of those. Tables: the 16-entry code, with double quantisation also the 256-entry
    code and the offset of the second level (bitsandbytes/functional.py `quantize_4bit`, 0.50).
    """
    layout = packing(quantization)
    size = prod(shape)
    if layout is None:
        return (int(-(-size * (quantization.bits or 16) // 8)),)
    inner = shape[-1] if shape else 1
    codes = int(-(-size * layout.bits // 8))
    count = -(-size // layout.group) if layout.group else -(-size // inner)
    if quantization.double_quant and quantization.method in ("bnb-nf4", "bnb-fp4"):
        return (codes, count, 4 * -(-count // 256), 16 * 4, 256 * 4, 4)
    pieces = [codes, int(count * layout.scale), int(-(-count * layout.zero_bits // 8)), layout.feature * inner]
    return tuple(piece for piece in (*pieces, *layout.tables) if piece)


def total(pieces: Iterable[int]) -> int:
    """Bytes allocated for several tensors."""
    return sum(block_size(piece) for piece in pieces)
