"""The colour of each memory component, on light and on dark ground."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

from ...estimator.estimate import COMPONENTS
from ...source.tables import read_table

if TYPE_CHECKING:
    from ...estimator.estimate import Estimate

Ground = Literal["light", "dark"]
GROUNDS: tuple[Ground, ...] = ("light", "dark")


def colours(ground: Ground) -> dict[str, str]:
    """Component -> `#rrggbb`."""
    return {component: colour[ground] for component, colour in _palette().items()}


def legend(estimate: Estimate) -> list[str]:
    """The components that a picture of all phases shows."""
    return [
        name for name in COMPONENTS if name == "runtime" or any(phase.components.get(name) for phase in estimate.phases)
    ]


def style_sheet() -> str:
    """The colours as CSS variables named like the components; the reader's system chooses the ground."""
    light, dark = (
        f":root {{ {' '.join(f'--{name}: {colour};' for name, colour in colours(ground).items())} }}"
        for ground in GROUNDS
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


@cache
def _palette() -> dict[str, dict[str, str]]:
    return read_table(__file__, "palette.json")
