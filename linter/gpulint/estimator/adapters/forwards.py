"""Which function stands for a linear module with an adapter of a type other than LoRA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import deltas, projected, rotations, side_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tape.tensor import Tensor
    from .modules import Linear

ADAPTED: dict[str, Callable[[Tensor, Linear, int], Tensor]] = {
    "adalora": side_paths.adalora,
    "beft": projected.beft,
    "boft": rotations.boft,
    "c3a": side_paths.c3a,
    "deft": projected.deft,
    "delora": side_paths.delora,
    "fourierft": deltas.fourierft,
    "glora": deltas.glora,
    "gralora": side_paths.gralora,
    "hira": deltas.hira,
    "hra": rotations.hra,
    "ia3": side_paths.ia3,
    "lily": projected.lily,
    "loha": deltas.loha,
    "lokr": deltas.lokr,
    "miss": side_paths.miss,
    "oft": rotations.oft,
    "peanut": projected.peanut,
    "psoft": projected.psoft,
    "pvera": side_paths.vera,
    "randlora": side_paths.randlora,
    "road": side_paths.road,
    "shira": deltas.shira,
    "supertuning": projected.supertuning,
    "tinylora": projected.tinylora,
    "unilora": projected.unilora,
    "vblora": side_paths.vblora,
    "vera": side_paths.vera,
}
