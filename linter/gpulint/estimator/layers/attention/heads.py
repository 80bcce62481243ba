"""The sizes of one attention call on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...tape.tensor import Parameter, Tensor
    from ..dims import LayerDims
    from .rope import Table


class Heads(NamedTuple):
    """Sequences, positions, heads and their widths, and how a kernel is called.

    `held` where the model's loop keeps a name for its probabilities, `bounded` where masked scores are bounded from
    below, `sequence_first` where the output is laid out as [s, b, nh, d]. `sdpa` is the best that torch has on the GPU
    for 16-bit operands (implementation.py `sdpa_kernels`).
    """

    batch: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dropout: float = 0.0
    softcap: bool = False
    kind: str = "float32"
    direct: bool = False
    sinks: Parameter | None = None
    grouped: bool = True
    laid_out: bool = False
    fp16: bool = False
    keys: int = 0
    repeats: bool = False
    held: bool = False
    bounded: bool = False
    sequence_first: bool = False
    sdpa: str = "flash"

    @property
    def scores(self) -> int:
        """Elements of a matrix of attention scores; `keys` is the length of what is attended to, 0 for their own."""
        return self.batch * self.heads * self.length * (self.keys or self.length)


class AttentionInputs(NamedTuple):
    """What a layer's attention is called with beside its hidden states; `rope_type` is a name of `rope.ROPES`."""

    heads: Heads
    table: Table
    mask: Tensor | None
    rope_type: str


def heads_of(dims: LayerDims, layer: int) -> Heads:
    """The sizes of a layer's attention call."""
    own = dims.attention
    heads, kv_heads, head_dim, value_dim = own.heads, own.kv_heads, own.head_dim, own.value_dim
    if own.by_layer:
        same = value_dim == head_dim
        head_dim, kv_heads, heads = own.by_layer[layer]
        value_dim = head_dim if same else value_dim
    return Heads(
        dims.batch,
        dims.length,
        heads,
        kv_heads,
        head_dim,
        value_dim,
        dims.dropout.attention,
        own.softcap,
        own.scores,
        dims.arch.direct,
        None,
        own.grouped_keys,
        own.contiguous,
        own.float16,
        repeats=own.repeats_keys,
        held=dims.arch.held,
        bounded=dims.arch.bounded,
        sequence_first=own.sequence_first,
        sdpa=own.sdpa,
    )
