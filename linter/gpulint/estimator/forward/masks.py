"""Attention masks and rotary tables, which all layers of a kind share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..layers.attention.rope import Table
from ..tape.labels import labelled

if TYPE_CHECKING:
    from ..layers.dims import LayerDims
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


@labelled("cosines and sines", part="rotary tables")
def rotary_table(tape: Tape, dims: LayerDims, rotary: tuple[int, int], e: int) -> Table:
    """cos and sin of (rotated features, features) of a head for every position, or for those of every sequence."""
    part, head_dim = rotary
    cell = 4 if dims.arch.wide_table else e
    rows = dims.rows if dims.arch.each_row else dims.length
    return Table(tape.new(rows * part, cell), tape.new(rows * part, cell), part, head_dim, dims.rows)


@labelled("mask", part="attention mask")
def mask(tape: Tape, dims: LayerDims, window: int | None, e: int) -> Tensor | None:
    """The 4-D mask, where one must exist: always for eager, for sdpa with padding or a window that cuts.

    Falcon adds ALiBi's slopes to it, one for every head. Models without attention make none (transformers 5.23
    masking_utils.py `create_recurrent_attention_mask`; wheels 4.45.2 to 5.0.0 modeling_mamba.py, modeling_mamba2.py).
    """
    if not dims.attends:
        return None
    implementation, size = dims.attention.implementation, dims.length * dims.keys
    cuts = window is not None and dims.length >= window
    if dims.arch.encoder:
        if not dims.job.padded and not cuts:
            return None
        if window is not None:
            return tape.new(dims.batch * size, e) if implementation == "eager" else tape.new(size, 1)
        if implementation == "sdpa":
            return tape.new(dims.rows, 1)
    if dims.arch.slopes and implementation in ("eager", "sdpa"):
        return tape.new(dims.batch * dims.attention.heads * size, e)
    if implementation == "eager":
        return tape.new(dims.batch * size, e)
    if implementation != "sdpa":
        return None
    if dims.job.padded or _images_see_all(dims, window):
        return tape.new(dims.batch * size, 1)
    if dims.arch.masked or dims.keys > dims.length or cuts:
        return tape.new(size, 1)
    return None


def _images_see_all(dims: LayerDims, window: int | None) -> bool:
    """Whether a layer has a mask of every sequence's own, in which images are not causal."""
    return dims.images.masks == "all" or (dims.images.masks == "sliding" and window is not None)


def sliding_mask(tape: Tape, dims: LayerDims, e: int) -> Tensor | None:
    """The mask of the sliding layers, made beside the full one."""
    windows = [window for window in dims.windows if window is not None]
    return mask(tape, dims, windows[0], e) if windows else None
