"""Jobs, estimates and findings as plain data, facts apart from words.

A dataclass or named tuple becomes a mapping by the names of its fields, so that a field that is added or renamed shows.
A list of such becomes a mapping by number, or by what tells its items apart, so that one that is added moves no other.
None and what is absent are the same.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

WORDING = {
    "Assumption": {"origin", "value"},
    "FileResult": {"reason"},
    "Finding": {"message", "notes"},
    "Estimate": {"refusal"},
    "Location": {"label"},
    "Model": {"namesake", "source"},
    "Origin": {"note"},
    "Problem": {"values"},
    "Reading": {"upstream"},
    "Suggestion": {"cost", "text"},
    "Term": {"formula", "label", "source"},
}
"""Fields for people, by class."""

COUNTED = {"Assumption": {"value"}, "Estimate": {"refusal"}, "Term": {"formula"}}
"""Those of them whose numbers are facts."""

LEFT_OUT = {
    "Estimate": {"assumptions", "beside", "phases", "tiers"},
    "Finding": {"estimate"},
    "Model": {"config", "defaults", "shape", "tensors"},
    "Phase": {"candidate", "terms"},
    "Term": {"factors"},
}
"""Fields that are told elsewhere, or at length."""

DERIVED = {"Estimate": ("runtime",), "Term": ("formula",)}
"""Properties that are told with the fields."""

_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/\w+/")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")


class Words(str):
    """Text for people."""

    __slots__ = ()


class Counted(Words):
    """Text for people whose numbers are facts."""

    __slots__ = ()


class Item(NamedTuple):
    """One line of a snapshot."""

    key: str
    facts: Any
    words: Any


def plain(value: Any) -> Any:
    """A value as mappings, lists and scalars; what is for people as `Words`."""
    if is_dataclass(value) and not isinstance(value, type):
        return _fielded(value, [item.name for item in fields(value)])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _span(value) if "end_line" in value._fields else _fielded(value, value._fields)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return numbered(("", item) for item in items) if any(map(_is_split, items)) else items
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def numbered(items: Any) -> dict[str, Any]:
    """(name, item) pairs as a mapping: `name#1`, `name#2` for items of one name."""
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for name, item in items:
        counts[name] = counts.get(name, 0) + 1
        found[f"{name}#{counts[name]}"] = item
    return found


def by_name(items: Any, name: str) -> dict[str, Any]:
    """Items of a dataclass as a mapping by one of their fields and its repetition."""
    return numbered((str(getattr(item, name)), plain(item)) for item in items)


def failure(error: Exception) -> dict[str, Any]:
    """An error in the place of what it kept from being."""
    return {"error": type(error).__name__, "message": Words(str(error))}


def item(key: str, told: Any, places: dict[str, str]) -> Item:
    """What is told of an item, without the folders of this machine: `places` says what stands for each."""
    clean = _Places(places)
    return Item(clean.without(key), clean.facts(told), clean.words(told))


class _Places:
    """Text without the folders of one machine, longest first."""

    def __init__(self, places: dict[str, str]) -> None:
        self.places = sorted(places.items(), key=lambda pair: (-len(pair[0]), pair))

    def without(self, text: str) -> str:
        """The text with what stands for the folders in their place."""
        for folder, stands in self.places:
            if folder in text:
                text = text.replace(folder + "/", stands).replace(folder, stands or ".")
        return _TEMPORARY.sub("", text)

    def facts(self, value: Any) -> Any:
        """The value without words; None for what consists of words."""
        if isinstance(value, Words):
            return " ".join(_NUMBER.findall(value)) if isinstance(value, Counted) else None
        if isinstance(value, str):
            return self.without(value)
        if isinstance(value, dict):
            return self._kept((self.without(name), self.facts(inner)) for name, inner in value.items())
        return [self.facts(inner) for inner in value] if isinstance(value, list) else value

    def words(self, value: Any) -> Any:
        """The words of a value; None where it has none."""
        if isinstance(value, Words):
            return self.without(value) or None
        if isinstance(value, dict):
            return self._kept((self.without(name), self.words(inner)) for name, inner in value.items()) or None
        return None

    @staticmethod
    def _kept(pairs: Any) -> dict[str, Any]:
        return {name: inner for name, inner in pairs if inner is not None}


def _fielded(value: Any, names: Any) -> dict[str, Any]:
    kind = type(value).__name__
    wording, counted, out = (table.get(kind, set()) for table in (WORDING, COUNTED, LEFT_OUT))
    found = {}
    for name in (*names, *DERIVED.get(kind, ())):
        if name in out:
            continue
        inner = plain(getattr(value, name))
        found[name] = _worded(inner, Counted if name in counted else Words) if name in wording else inner
    return found


def _worded(value: Any, words: type[Words]) -> Any:
    """Every string in a value as words."""
    if isinstance(value, str):
        return words(value)
    if isinstance(value, list):
        return numbered(("", _worded(inner, words)) for inner in value)
    if isinstance(value, dict):
        return {name: _worded(inner, words) for name, inner in value.items()}
    return value


def _is_split(value: Any) -> bool:
    return isinstance(value, (dict, Words))


def _span(value: Any) -> str:
    """`line:column-line:column (start-end)`."""
    numbers = value._asdict()
    begin, end = f"{numbers['line']}:{numbers['column']}", f"{numbers['end_line']}:{numbers['end_column']}"
    return f"{begin}-{end} ({numbers.get('start')}-{numbers.get('end')})"
