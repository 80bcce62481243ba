"""Bytes and counts as people read them."""

from __future__ import annotations

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

MOST = 1 << 63
"""A number beyond it counts no memory; one that no float holds would be infinite."""

DTYPE_BYTES = {
    "float64": 8.0,
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8": 1.0,
    "int64": 8.0,
    "int32": 4.0,
    "int8": 1.0,
    "uint8": 1.0,
    "float4": 0.5,
    "int4": 0.5,
}


def bytes_text(size: float) -> str:
    """`size` bytes with a binary unit and one decimal: 64212385792 -> '59.8 GiB'."""
    magnitude = abs(size)
    if magnitude >= TIB:
        return f"{size / TIB:.2f} TiB"
    if magnitude >= 0.05 * GIB:
        return f"{size / GIB:.1f} GiB"
    if magnitude >= MIB:
        return f"{size / MIB:.1f} MiB"
    if magnitude >= KIB:
        return f"{size / KIB:.1f} KiB"
    return f"{size:.0f} B"


def bytes_of(text: str, whole: int) -> int:
    """The bytes that `2 GiB`, `500MB` or `5%` of `whole` stand for; decimal units are powers of 1000."""
    text = text.strip()
    if text.endswith("%"):
        return int(min(float(text[:-1]), MOST) / 100 * whole)
    number = text.rstrip("KMGTiB ")
    unit = text[len(number) :].strip()
    power = "KMGT".index(unit[0]) + 1
    return int(min(float(number), MOST) * (1024 if "i" in unit else 1000) ** power)


def count_text(number: float) -> str:
    """A parameter count: 8030261248 -> '8.03 B', 20971520 -> '21.0 M'."""
    if number >= 1e9:
        return f"{number / 1e9:.2f} B"
    if number >= 1e6:
        return f"{number / 1e6:.1f} M"
    if number >= 1e4:
        return f"{number / 1e3:.0f} k"
    return f"{number:,.0f}"
