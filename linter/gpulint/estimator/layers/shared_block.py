"""What each use of Zamba 2's shared block has for itself: low-rank pairs beside its projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.ops import add

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..tape.tensor import Tensor

PART = "shared block"

BLOCK = "shared_transformer"


def own_pair(y: Tensor, x: Tensor, modules: Modules, name: str, rows: int) -> Tensor:
    """y and what the layer's own low-rank pair makes of x; y itself where there is none."""
    first, second = modules.leaf(f"{name}_adapter_list.0"), modules.leaf(f"{name}_adapter_list.1")
    if first is None or second is None:
        return y
    return add(y, project(project(x, first, rows), second, rows))
