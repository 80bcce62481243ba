"""How a field is declared: meaning, unit, default and bounds, in one place.

Job files, settings, rule files and the JSON that is printed are dataclasses of such fields. pydantic reads
`description`, `ge` and `json_schema_extra` from the metadata of a dataclass's field, as if they were given to its own
`Field`; so nothing here needs pydantic until a job file is read. The schemas in `schemas/`, the page of facts, the page
of settings and the editor's help are made of the same.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
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
    own: Any = None,
    **keywords: Any,
) -> Any:
    """A field whose default is `default`, or `made` anew for each object. A default of None: nothing sets it.

    `unit` is that of its number (`tokens`, `bytes`, `elements`), `least` the smallest that a file may give, `keywords`
    are further ones of JSON Schema (`maxLength`). `own` is for the reader of the file; no schema shows it.
    """
    metadata: dict[str, Any] = {"description": meaning, "own": own}
    if least is not None:
        metadata["ge"] = least
    if unit:
        keywords[UNIT] = unit
    if keywords:
        metadata["json_schema_extra"] = keywords
    return field(default=default, metadata=metadata) if made is None else field(default_factory=made, metadata=metadata)


class Keywords:
    """Keywords of JSON Schema for a type inside another: `list[Annotated[str, Keywords(maxLength=80)]]`."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """What pydantic asks the objects of an `Annotated` for."""
        return {**handler(core), **self.keywords}


def meaning_of(metadata: Any) -> str:
    """The meaning in a field's metadata."""
    return str(metadata["description"])


def unit_of(metadata: Any) -> str:
    """The unit in a field's metadata, "" for plain numbers, text and truth values."""
    return str(metadata.get("json_schema_extra", {}).get(UNIT, ""))


def plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists. A field whose default is None is left out where it is None."""
    if is_dataclass(value):
        given = ((item, getattr(value, item.name)) for item in fields(value))
        return {item.name: plain(each) for item, each in given if each is not None or item.default is not None}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
