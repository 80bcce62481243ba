"""bitsandbytes."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "bitsandbytes"

KEEPS_INPUT = Behaviour(
    NAME,
    "keeps the input of its 4-bit product on the context",
    "autograd/_functions.py `MatMul4Bit` up to 0.43.1 (`ctx.tensors`)",
    until="0.43.2",
)
KEEPS_TRANSPOSED = Behaviour(
    NAME,
    "keeps the transposed int8 copy of the input of its 8-bit product, too",
    "autograd/_functions.py `MatMul8bitLt`",
    until="0.45",
)
ALWAYS_UNPACKS = Behaviour(
    NAME,
    "unpacks a 4-bit weight in the forward pass for any number of rows but one; since, from 1,537 rows on",
    "autograd/_functions.py `MatMul4Bit` of 0.49 and 0.50",
    until="0.50",
)
