"""What a forward function returns under autocast, which Accelerate makes float32.

Source: accelerate/utils/operations.py `ConvertOutputsToFp32`, `convert_to_fp32`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.labels import labelled
from .answers import read, reads

if TYPE_CHECKING:
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def widened(s: Setting, tape: Tape, segment: int) -> None:
    """Float32 copies of what a forward function returns under autocast, made where it has ended.

    Autocast's copies of weights are gone by then, as in the backward pass, to which the instant is counted
    (accelerate/utils/operations.py `ConvertOutputsToFp32`). Cached keys are returned and copied too, those of layers
    that are not replayed as well.
    """
    if s.autocast and s.returned:
        tape.enter(segment, backward=True)
        sizes = [(x.n, x.storage.logits) for x in narrow(s)]
        sizes += [(s.widened_keys // 4, False)] * (s.layers if s.release.caches else 0)
        copies = [_in_float32(tape, *size) for size in sizes]
        if s.cached_keys:
            replayed = sum(kept.size == s.cached_keys for kept in s.cache)
            tape.beside((s.layers - replayed) * s.cached_keys, 2 if s.widened_keys else 4)
        if sizes and reads(s):
            s.returned.clear()
            read(max(n for n, _ in sizes), 4, s, tape)
        del copies
        tape.begin_anew(segment)
    elif s.returned and reads(s):
        read(s.returned[-1].n, s.returned[-1].e, s, tape)
    s.returned.clear()


def narrow(s: Setting) -> list[Tensor]:
    """What of it is copied: all that is not float32 yet, under autocast."""
    return [x for x in s.returned if x.e < 4] if s.autocast else []


@labelled("float32 copy", part="end of forward")
def _in_float32(tape: Tape, n: int, logits: bool) -> Tensor:
    return tape.new(n, 4, logits)
