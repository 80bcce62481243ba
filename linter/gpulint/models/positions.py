"""How long requests usually are for models of a type, for checkpoints of which no config states it."""

from __future__ import annotations

import json
from functools import cache

from .tables import read_data


def usual_positions(model_type: str) -> int:
    """Tokens that four in five of the catalogue's ids of a model type do not exceed, of those whose config states
    positions; that of all types where no config of this one does. `scripts/models.py catalogue` writes the table.
    """
    table = _table()
    return table.get(model_type, table[""])


@cache
def _table() -> dict[str, int]:
    table: dict[str, int] = json.loads(read_data("positions.json"))
    return table
