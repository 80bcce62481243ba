"""How the parts of a Job declare a field: meaning, unit, default and least value, in one place.

pydantic reads `description`, `ge` and `json_schema_extra` from the metadata of a dataclass's field, as if they were
given to its own `Field`; so a Job needs no pydantic until a job file is read. `schemas/job.json`, the page of facts and
the editor's help are made of the same.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

UNIT = "x-unit"
"""The annotation of a JSON Schema that names a unit."""


def declared(
    meaning: str,
    default: Any = MISSING,
    *,
    made: Callable[[], Any] | None = None,
    unit: str = "",
    least: int | None = None,
) -> Any:
    """A field whose default is `default`, or `made` anew for each Job. A default of None: nothing sets it.

    `unit` is that of its number (`tokens`, `bytes`, `elements`), `least` the smallest that a job file may give.
    """
    metadata: dict[str, Any] = {"description": meaning}
    if least is not None:
        metadata["ge"] = least
    if unit:
        metadata["json_schema_extra"] = {UNIT: unit}
    return field(default=default, metadata=metadata) if made is None else field(default_factory=made, metadata=metadata)


def meaning_of(metadata: Any) -> str:
    """The meaning in a field's metadata."""
    return str(metadata["description"])


def unit_of(metadata: Any) -> str:
    """The unit in a field's metadata, "" for plain numbers, text and truth values."""
    return str(metadata.get("json_schema_extra", {}).get(UNIT, ""))
