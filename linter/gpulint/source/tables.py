"""The JSON tables that are shipped beside the modules that read them."""

from __future__ import annotations

import json
import os
from typing import Any


def read_table(module: str, name: str) -> dict[str, Any]:
    """The table of a file in the folder of a module: `read_table(__file__, "gpus.json")`. Each call reads it anew."""
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8") as file:
        table: dict[str, Any] = json.load(file)
    return table
