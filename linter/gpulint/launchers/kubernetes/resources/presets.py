"""What projects ship for names in custom resources: presets, profiles, runtimes (made by `scripts/refresh.py`)."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any


@cache
def table(name: str) -> dict[str, Any]:
    """The table of `presets_<name>.json`."""
    with open(os.path.join(os.path.dirname(__file__), f"presets_{name}.json"), encoding="utf-8") as file:
        rows: dict[str, Any] = json.load(file)
    return rows
