"""What stands at an offset of a file that has been read: the key, what its schema says, the Job fields behind it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..formats.core.key_help import help_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..formats.core.bindings.rows import Key as Row
    from ..formats.core.key_help import KeyHelp, Step
    from ..job.origin import Origin
    from ..source.node import Entry, Node, Span
    from .reading import Plan, Read

MAX_DEPTH = 64
"""Levels of a tree that are looked into."""


class Key(NamedTuple):
    """A key of a file: its dotted name, where key and value stand, and what its schema says, if it knows it."""

    dotted: str
    start: int
    end: int
    help: KeyHelp | None


def key_at(read: Read, path: str, offset: int) -> Key | None:
    """The key whose name or scalar value stands at an offset."""
    found: Key | None = None
    for held in read.held:
        steps, entry = _entry(held.node, offset)
        if entry is None or os.path.abspath(entry.key.path or held.path) != path:
            continue
        dotted = ".".join([held.prefix] * bool(held.prefix) + [step for step in steps if isinstance(step, str)])
        key = Key(dotted, *_extent(entry), help_of(held, steps))
        if found is None or key.help is not None or found.help is None:
            found = key
    if found is not None:
        return found
    origins = (origin for plan in read.jobs for origin in plan.opened.reading.job.origins.values())
    return next(filter(None, (_of_origin(origin, path, offset) for origin in origins)), None)


def _of_origin(origin: Origin, path: str, offset: int) -> Key | None:
    """The key that an origin names, if it stands there: of a format whose keys no schema tells."""
    if origin.kind == "comment" or origin.file is None or os.path.abspath(origin.file) != path:
        return None
    spans = [span for span in (origin.key_span, origin.span) if span is not None and span.line == span.end_line]
    if not any(_inside(span, offset) for span in spans):
        return None
    return Key(origin.key or "", min(span.start for span in spans), max(span.end for span in spans), None)


def fields_at(plan: Plan, path: str, key: Key) -> Iterator[str]:
    """The Job fields that a key of a file sets."""
    for name, origin in plan.opened.reading.job.origins.items():
        if origin.kind in ("default", "assumed") or origin.file is None or os.path.abspath(origin.file) != path:
            continue
        span = origin.key_span or origin.span
        if span is not None and key.start <= span.start <= key.end:
            yield name


def rows_at(read: Read, dotted: str) -> Iterator[Row]:
    """What the formats of a file's jobs say of a key, whether or not it has set anything."""
    from ..formats.core.bindings.help import rows_of
    from ..formats.core.registry import find

    for name in dict.fromkeys(plan.opened.reading.format for plan in read.jobs):
        table = find(name).table
        if table is not None:
            yield from rows_of(table, dotted)


def _entry(root: Node, offset: int) -> tuple[Sequence[Step], Entry | None]:
    """The way down to the entry at an offset, and the entry."""
    steps: list[Step] = []
    node = root
    while len(steps) < MAX_DEPTH:
        if node.is_mapping:
            entry = next((item for item in node.entries()[node.merged :] if _holds(item, offset)), None)
            if entry is None:
                return (), None
            steps.append(str(entry.key.value))
            if entry.value.is_scalar or not _inside(entry.value.span, offset) or _inside(entry.key.span, offset):
                return steps, entry
            node = entry.value
        elif node.is_sequence:
            items = enumerate(node.items())
            place, item = next(((n, item) for n, item in items if _inside(item.span, offset)), (0, None))
            if item is None or item.is_scalar:
                return (), None
            steps.append(place)
            node = item
        else:
            break
    return (), None


def _holds(entry: Entry, offset: int) -> bool:
    return _inside(entry.key.span, offset) or _inside(entry.value.span, offset)


def _inside(span: Span, offset: int) -> bool:
    return span.start <= offset <= span.end and span.end > span.start


def _extent(entry: Entry) -> tuple[int, int]:
    """From the key to the end of a scalar value, or of the key itself where it holds more."""
    key, value = entry.key.span, entry.value.span
    return key.start, value.end if entry.value.is_scalar and value.end > key.end else key.end
