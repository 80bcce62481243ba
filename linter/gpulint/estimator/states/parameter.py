"""One parameter as a rank holds it."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from . import storage


class Parameter(NamedTuple):
    """A parameter of the model or of its adapter on one rank, once for all `copies` layers that have it.

    dtype       of its elements; of what a packed weight computes in
    pieces      bytes of the tensors that store one copy
    part        `base`, `adapter`, `copy` (of a module that PEFT trains and saves whole) or `buffer`
    packed      stored by a quantisation method
    layers      the layers of its stack that have it; None outside any stack
    idle        wants a gradient that never comes: its module runs without autograd; not `trainable` here
    swept       frozen, but flattened into one parameter with trained ones, so that its gradient is made all the same
    decay       whether the Trainer puts it in the weight-decay group (not a norm, not a bias)
    """

    name: str
    shape: tuple[int, ...]
    copies: int
    layers: tuple[int, ...] | None
    role: str
    dtype: str
    pieces: tuple[int, ...]
    part: str = "base"
    trainable: bool = False
    packed: bool = False
    swept: bool = False
    idle: bool = False

    @property
    def graded(self) -> bool:
        """Whether autograd makes a gradient of it."""
        return self.trainable or self.swept

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return prod(self.shape)

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.size * self.copies

    @property
    def raw(self) -> int:
        """Bytes of all copies, as the tensors count them."""
        return self.copies * sum(self.pieces)

    @property
    def allocated(self) -> int:
        """Bytes of all copies, as torch's allocator counts them."""
        return self.copies * storage.total(self.pieces)

    @property
    def element_bytes(self) -> float:
        """Bytes of one unpacked element."""
        return storage.dtype_bytes(self.dtype)

    @property
    def decay(self) -> bool:
        """Trainer.get_decay_parameter_names: norms and biases are in the group without weight decay."""
        return self.role not in ("norm", "bias") and not self.name.endswith(".bias")


def pieces_of(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The bytes of an unpacked tensor, as the one piece that it is."""
    return (int(prod(shape) * storage.dtype_bytes(dtype)),)
