"""What projects ship for names in custom resources: presets, profiles, runtimes (made by `scripts/refresh.py`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ....formats.core.placeholders import is_blank
from ....source.tables import read_table


@cache
def table(name: str) -> dict[str, Any]:
    """The table of `presets_<name>.json`."""
    return read_table(__file__, f"presets_{name}.json")


def kaito_preset(name: str) -> dict[str, Any] | None:
    """The row of a preset: a short name of KAITO, or any model of the hub as `org/name`."""
    key = name.strip().lower()
    row: dict[str, Any] | None = table("kaito")["presets"].get(key)
    return row or ({"model": name.strip()} if key.count("/") == 1 and not is_blank(name) else None)
