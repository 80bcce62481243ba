"""What a forward function returns under autocast, which Accelerate makes float32.

Source: accelerate/utils/operations.py `ConvertOutputsToFp32`, `convert_to_fp32`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.labels import labelled
from .answers import read, reads

if TYPE_CHECKING:
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor


def widened(dims: LayerDims, state: ReplayState, tape: Tape, segment: int) -> None:
    """Float32 copies of what a forward function returns under autocast, made where it has ended.

    Autocast's copies of weights are gone by then, as in the backward pass, to which the instant is counted
    (accelerate/utils/operations.py `ConvertOutputsToFp32`). Cached keys are returned and copied too, those of layers
    that are not replayed as well.
    """
    if dims.autocast and state.module_outputs:
        tape.enter(segment, backward=True)
        sizes = [(x.n, x.storage.logits) for x in narrow(dims, state)]
        sizes += [(state.widened_keys // 4, False)] * (dims.layers if dims.attention.caches_keys else 0)
        copies = [_in_float32(tape, *size) for size in sizes]
        if state.cached_keys:
            replayed = sum(kept.size == state.cached_keys for kept in state.held_by_forward)
            tape.beside((dims.layers - replayed) * state.cached_keys, 2 if state.widened_keys else 4)
        if sizes and reads(dims):
            state.module_outputs.clear()
            read(max(n for n, _ in sizes), 4, dims, tape)
        del copies
        tape.begin_anew(segment)
    elif state.module_outputs and reads(dims):
        read(state.module_outputs[-1].n, state.module_outputs[-1].e, dims, tape)
    state.module_outputs.clear()


def narrow(dims: LayerDims, state: ReplayState) -> list[Tensor]:
    """What of it is copied: all that is not float32 yet, under autocast."""
    return [x for x in state.module_outputs if x.e < 4] if dims.autocast else []


@labelled("float32 copy", part="end of forward")
def _in_float32(tape: Tape, n: int, logits: bool) -> Tensor:
    return tape.new(n, 4, logits)
