"""What projects ship for names in custom resources: presets, profiles, runtimes (made by `scripts/refresh.py`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ....source.tables import read_table


@cache
def table(name: str) -> dict[str, Any]:
    """The table of `presets_<name>.json`."""
    return read_table(__file__, f"presets_{name}.json")
