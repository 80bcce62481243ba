"""From what a rule points at (Job fields, keys, the item) to spans, and the fingerprint of a finding."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Location
from ..source.node import Span
from .facts.facts import CONFIG, DEEPSPEED, LAUNCH, OPTION
from .message import filled

if TYPE_CHECKING:
    from ..job.origin import Origin
    from ..source.node import Entry
    from .facts.facts import Facts
    from .rule import Place, Rule

FIRST_LINE = Span(1, 1, 1, 1, 0, 0)


class Spot(NamedTuple):
    """A place in a file and the key that stands there."""

    path: str
    span: Span
    key: str


def locations(rule: Rule, facts: Facts) -> tuple[Location, tuple[Location, ...], str]:
    """The primary location, the related ones, and the key of the primary.

    The first place of `at` that stands in a file is primary. Where none does it is the model's key, then the
    start of the checked file.
    """
    found: list[tuple[Spot, Place | None]] = []
    for place in rule.at:
        spot = _spot(place.path, facts)
        if spot is not None and all(spot[:2] != other[:2] for other, _ in found):
            found.append((spot, place))
    found.sort(key=lambda item: item[0].path.endswith(".py"))  # what a script itself says comes behind its command
    if not found:
        spot = _spot("model", facts) or Spot(facts.reading.config.path, FIRST_LINE, "")
        found = [(spot, None)]
    shown = [
        Location(spot.path, spot.span, (filled(place.label, facts) or "") if place else "") for spot, place in found
    ]
    return shown[0], tuple(shown[1:]), found[0][0].key


def _spot(path: str, facts: Facts) -> Spot | None:
    if path == "item":
        item = facts.item
        return Spot(item.path or facts.reading.config.path, item.span, item.key) if item else None
    if path.startswith((CONFIG, DEEPSPEED, OPTION)):
        entry = facts.entry(path)
        if entry is None:
            return None
        inside = path.startswith(DEEPSPEED)
        file = facts.deepspeed_path() if inside else facts.reading.config.path
        key = str(entry.key.value) if path.startswith(OPTION) else path.partition(".")[2]
        return Spot(entry.key.path or file, entry_span(entry), key)
    origins = facts.job.origins
    if path.startswith(LAUNCH):
        origins = {LAUNCH + name: said[1] for name, said in (facts.reading.launch or {}).items()}
    readable = {
        document.path for document in (facts.reading.config, *facts.reading.references.values()) if document.text
    }
    for name in (path, *(other for other in origins if other.startswith(path + "."))):
        origin = origins.get(name)
        if origin is not None and origin.file in readable and origin.span:
            return Spot(origin.file or "", _origin_span(origin), origin.key or name)
    return None


def entry_span(entry: Entry) -> Span:
    """The value's span where it is a scalar on one line, else the key's."""
    return _narrow(entry.value.span, entry.key.span)


def _origin_span(origin: Origin) -> Span:
    return _narrow(origin.span, origin.key_span)


def _narrow(value: Span | None, key: Span | None) -> Span:
    if value is not None and value.line == value.end_line and value.end > value.start:
        return value
    return key or value or FIRST_LINE


def fingerprint(rule: Rule, facts: Facts, path: str, key: str, ordinal: int) -> str:
    """16 hex digits from the rule, the file relative to the project root and the key; no line numbers.

    `ordinal` tells equal ones of one file apart.
    """
    from hashlib import sha256

    root = facts.project.root or os.curdir
    try:
        relative = os.path.relpath(path, root)
    except ValueError:
        relative = path
    text = "\0".join((rule.id, relative.replace(os.sep, "/"), key, str(ordinal)))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
