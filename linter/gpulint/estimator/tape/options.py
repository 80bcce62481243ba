"""What a job's libraries make of every operation on the tape."""

from __future__ import annotations

from typing import NamedTuple


class Packed(NamedTuple):
    """What differs between releases of bitsandbytes (autograd/_functions.py); a job that states none has 0.50.

    keeps_input     `MatMul4Bit` holds its input on its context (up to 0.42)
    always_unpacks  its forward pass unpacks the weight for any number of rows (before 0.50)
    transposed      `MatMul8bitLt` holds the transposed int8 copy of its input too (before 0.45)
    halved          16-bit inputs of `MatMul8bitLt` are bfloat16, which it takes to float16 and back
    """

    keeps_input: bool = False
    always_unpacks: bool = False
    transposed: bool = False
    halved: bool = False


class Options(NamedTuple):
    """What a job's libraries make of every operation.

    autocast           bytes of an element under autocast, 0 without
    operands           bytes of an element of what a product saves of its input, 0 for those it came with
    inputs_of_softmax  softmax saves its input beside its result
    attention_again    no selective checkpoint keeps what the attention kernel makes
    loss_parallel      each rank has the logits of its part of the vocabulary, in torch's own cross entropy
    accumulated        gradients are added to those that are there
    """

    autocast: int = 0
    operands: int = 0
    packed: Packed = Packed()
    inputs_of_softmax: bool = False
    attention_again: bool = False
    loss_parallel: bool = False
    accumulated: bool = False
