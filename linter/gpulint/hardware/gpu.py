"""One GPU model as gpulint knows it."""

from __future__ import annotations

from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU.

    name      catalogue name, `h100-80gb`;  title  for people, `H100 80GB`
    total     bytes that nvidia-smi reports;  usable  the smallest total that torch has been seen to report
    bf16, fp8, fp4, flash_attention   whether the chip can
    unified   whether its memory is the processor's too, of which NVML reports no total
    display   whether it is sold for machines with a screen, whose desktop takes some of it
    """

    name: str
    title: str
    vendor: str
    architecture: str
    compute_capability: float | None
    total: int
    usable: int
    bf16: bool
    fp8: bool
    fp4: bool
    flash_attention_2: bool
    flash_attention_3: bool
    aliases: tuple[str, ...]
    source: str
    unified: bool = False
    display: bool = False
