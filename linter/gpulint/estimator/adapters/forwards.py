"""Which function stands for a linear module with an adapter of a type other than LoRA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import deltas, projected, rotations, side_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..tape.tensor import Tensor
    from .modules import Linear

ADAPTED: Mapping[str, Callable[[Tensor, Linear, int], Tensor]] = {"pvera": side_paths.vera} | {
    function.__name__: function
    for function in (
        side_paths.adalora, projected.beft, rotations.boft, side_paths.c3a, projected.deft, side_paths.delora,
        deltas.fourierft, deltas.glora, side_paths.gralora, deltas.hira, rotations.hra, side_paths.ia3,
        projected.lily, deltas.loha, deltas.lokr, side_paths.miss, rotations.oft, projected.peanut,
        projected.psoft, side_paths.randlora, side_paths.road, deltas.shira, projected.supertuning,
        projected.tinylora, projected.unilora, side_paths.vblora, side_paths.vera,
    )
}  # fmt: skip
