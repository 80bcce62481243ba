"""PROVISIONAL: the owner of this room replaces this file."""

from __future__ import annotations

from typing import NamedTuple


class CatalogueRow(NamedTuple):
    """One hub id."""

    id: str
    model_type: str
    parameters: int | None


def search(query: str) -> list[CatalogueRow]:
    """Ids that contain the query."""
    return []
