"""The models that KAITO has presets of."""

from __future__ import annotations

from typing import Any

from ....formats.core.placeholders import is_blank
from .presets import table


def preset(name: str) -> dict[str, Any] | None:
    """The row of a preset: a short name of KAITO, or any model of the hub as `org/name`."""
    key = name.strip().lower()
    row: dict[str, Any] | None = table("kaito")["presets"].get(key)
    return row or ({"model": name.strip()} if key.count("/") == 1 and not is_blank(name) else None)
