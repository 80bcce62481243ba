"""What the rows of a format say of a key, for people who write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .rows import LEAVE, Assumed, Default, Derived, Written

if TYPE_CHECKING:
    from ..format import Rows
    from .rows import Key


def rows_of(table: Rows, dotted: str) -> tuple[Key, ...]:
    """The rows of a key under its dotted name, whichever of dashes and underscores it is spelled with."""
    name = dotted.replace("-", "_")
    return tuple(row for row in table.key_rows() if name in {known.replace("-", "_") for known in row.names})


def words_of(row: Key) -> tuple[Any, ...]:
    """The values that a row knows by name; none where any value of its kind will do."""
    return tuple(row.to) if isinstance(row.to, Mapping) else ()


def default_of(row: Key) -> Any:
    """What holds where the key says nothing; LEAVE where another row, or the release that runs, decides."""
    source = row.default
    if isinstance(source, (Written, Default, Derived, Assumed)):
        source = source.value
    return LEAVE if callable(source) else source
