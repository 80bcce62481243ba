"""Which function stands for a linear module with an adapter of a type other than LoRA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import added, deltas, projected, rotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from .modules import Linear
    from .tensor import Tensor

ADAPTED: dict[str, Callable[[Tensor, Linear, int], Tensor]] = {
    "adalora": added.adalora,
    "beft": projected.beft,
    "boft": rotations.boft,
    "c3a": added.c3a,
    "deft": projected.deft,
    "delora": added.delora,
    "fourierft": deltas.fourierft,
    "glora": deltas.glora,
    "gralora": added.gralora,
    "hira": deltas.hira,
    "hra": rotations.hra,
    "ia3": added.ia3,
    "lily": projected.lily,
    "loha": deltas.loha,
    "lokr": deltas.lokr,
    "miss": added.miss,
    "oft": rotations.oft,
    "peanut": projected.peanut,
    "psoft": projected.psoft,
    "pvera": added.vera,
    "randlora": added.randlora,
    "road": added.road,
    "shira": deltas.shira,
    "supertuning": projected.supertuning,
    "tinylora": projected.tinylora,
    "unilora": projected.unilora,
    "vblora": added.vblora,
    "vera": added.vera,
}
