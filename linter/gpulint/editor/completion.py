"""What may be written at the cursor: keys that a mapping takes and lacks, values of a key, names in comments."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ..formats.core.bindings.help import words_of
from ..formats.core.key_help import NO_DEFAULT, folded, help_of, keys_at
from .comments import gpus, within_comment
from .cursor import rows_at
from .hover import describe, written
from .offer import Completion, Item
from .scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..formats.core.key_help import KeyHelp, Step
    from ..formats.core.keys import Held
    from .reading import Read
    from .scan import Spot

MAX_MODELS = 100
"""Models that are offered at once."""

MODEL_KEYS = frozenset(
    {"base_model", "model", "model_id", "model_name", "model_name_or_path", "pretrained_model_name_or_path"}
)
"""Keys that name a model where the file does not yet say so itself."""


def complete(read: Read | None, path: str, text: str, offset: int, syntax: str) -> Completion:
    """What may be written at an offset. `read` is the last reading of the file that came to something."""
    comment = within_comment(text, offset)
    if comment is not None:
        return Completion(comment)
    flags = syntax == "shell" or _in_flag(text, offset)
    spot = scan(text, offset, "shell" if flags else syntax)
    if read is None or spot is None:
        return Completion([])
    held = _flags(read, path, offset) if flags else _held(read, path, spot.steps, offset)
    if spot.key:
        return _values(read, path, text, held, spot, syntax)
    if held is None:
        return Completion([])
    return Completion([*(_options(held[0], spot, syntax) if flags else _keys(held, spot, syntax))])


_Place = tuple["Held", "tuple[Step, ...]"]


def _in_flag(text: str, offset: int) -> bool:
    """Whether a flag is written: in a command or in a list of arguments, whatever the file."""
    return re.search(r"""(^|[\s"'\[,])--[\w.-]*$""", text[text.rfind("\n", 0, offset) + 1 : offset]) is not None


def _held(read: Read, path: str, steps: Sequence[Step], offset: int) -> _Place | None:
    """The innermost mapping around the cursor that a schema tells, and the way from there.

    Of several YAML documents that of the cursor; a mapping in a string of the file is no step of its tree.
    """
    found: _Place | None = None
    best: tuple[bool, int] = (False, -1)
    for held in read.held:
        prefix = held.prefix.split(".") if held.prefix else []
        inner = held.syntax == "flags" or (held.syntax == "yaml" and not prefix and held.node.span.column > 1)
        rest = _below(prefix, steps) if not inner and os.path.abspath(held.path) == path else None
        rank = held.node.span.start <= offset <= held.node.span.end, len(prefix)
        if rest is not None and rank >= best:
            found, best = (held, rest), rank
    return found


def _below(prefix: Sequence[str], steps: Sequence[Step]) -> tuple[Step, ...] | None:
    """The steps that are left below a dotted place, which counts no places of lists."""
    rest = list(steps)
    for name in prefix:
        while rest and isinstance(rest[0], int):
            rest.pop(0)
        if not rest or rest.pop(0) != name:
            return None
    while rest and isinstance(rest[0], int):
        rest.pop(0)
    return tuple(rest)


def _flags(read: Read, path: str, offset: int) -> _Place | None:
    """The command whose flags stand closest before the cursor."""
    best: tuple[int, Held] | None = None
    for held in read.held:
        if held.syntax == "flags" and os.path.abspath(held.path) == path:
            starts = [held.node.span.start, *(entry.key.span.start for entry in held.node.entries())]
            start = max((start for start in starts if start <= offset), default=None)
            if start is not None and (best is None or start >= best[0]):
                best = start, held
    return (best[1], ()) if best is not None else None


def _keys(place: _Place, spot: Spot, syntax: str) -> Iterator[Item]:
    held, steps = place
    taken = set(map(folded, spot.others))
    for key in keys_at(held, steps):
        if folded(key.name) not in taken:
            yield _key_item(key, _key_text(key, spot, syntax), spot)


def _key_item(key: KeyHelp, text: str, spot: Spot) -> Item:
    default = "" if key.default is NO_DEFAULT else f" = {written(key.default)}"
    return Item(key.name, text, spot.start, spot.end, "key", f"{key.type}{default}", describe(key), bool(key.old))


def _key_text(key: KeyHelp, spot: Spot, syntax: str) -> str:
    if syntax == "json":
        name = f'"{key.name}"' if spot.bare else key.name
        return name if spot.closed or not spot.bare else f"{name}: "
    if spot.closed:
        return key.name
    return f"{key.name} = " if syntax == "toml" else f"{key.name}: "


def _options(held: Held, spot: Spot, syntax: str) -> Iterator[Item]:
    """The flags that a command lacks, in the spelling that it uses."""
    here = [entry for entry in held.node.entries() if not spot.start <= entry.key.span.start <= spot.end]
    names = [str(entry.key.value) for entry in here]
    dashes = sum("-" in name for name in names) > sum("_" in name for name in names)
    taken = set(map(folded, names))
    for key in keys_at(held, ()):
        if folded(key.name) not in taken:
            name = key.name.replace("_", "-") if dashes else key.name
            text = f"--{name} " if syntax == "shell" else f"--{name}"
            yield _key_item(key, text, spot)._replace(label=f"--{name}")


def _values(read: Read, path: str, text: str, held: _Place | None, spot: Spot, syntax: str) -> Completion:
    fields = _fields(read, path, spot.key)
    word = text[spot.start : spot.end]
    if "model" in fields or (folded(spot.key) in MODEL_KEYS and not fields):
        return _models(word, spot, syntax)
    if "hardware.gpu" in fields or (read.kind == "job" and spot.key == "gpu"):
        return Completion([item._replace(text=_value(item.label, spot, syntax)) for item in gpus(spot.start, spot.end)])
    key = help_of(held[0], (*held[1], spot.key)) if held is not None else None
    if key is None:
        return Completion([])
    dotted = ".".join([held[0].prefix] * bool(held[0].prefix) + [*map(str, held[1]), spot.key]) if held else spot.key
    known = [word for row in rows_at(read, dotted) for word in words_of(row) if isinstance(word, str)]
    values = list(dict.fromkeys([*key.values, *known]))
    if key.default is not NO_DEFAULT and not isinstance(key.default, dict | list) and key.default is not None:
        default = str(key.default).lower() if isinstance(key.default, bool) else key.default
        values = list(dict.fromkeys([default, *values]))
    if "optimizer.name" in fields:
        from ..estimator.states.optimizer import names

        values = list(dict.fromkeys([*values, *sorted(names())]))
    booleans = key.values[-2:] == ("true", "false")
    return Completion(
        [
            Item(
                str(value),
                _value(value, spot, syntax, word=not (booleans and value in ("true", "false"))),
                spot.start,
                spot.end,
                "value",
                "default" if not number and key.default not in (NO_DEFAULT, None) else "",
            )
            for number, value in enumerate(values)
        ]
    )


def _value(value: Any, spot: Spot, syntax: str, *, word: bool = True) -> str:
    """A value as it is written, in quotes where words want them and there are none."""
    quoted = spot.bare and syntax in ("json", "toml") and word and isinstance(value, str)
    return f'"{value}"' if quoted else str(value)


def _fields(read: Read, path: str, key: str) -> set[str]:
    """The Job fields that a key of this name sets in the file."""
    return {
        name
        for plan in read.jobs
        for name, origin in plan.opened.reading.job.origins.items()
        if origin.file is not None
        and os.path.abspath(origin.file) == path
        and folded((origin.key or "").rpartition(".")[2]) == folded(key)
    }


def _models(word: str, spot: Spot, syntax: str) -> Completion:
    """The ids of the catalogue that hold every part of the word."""
    from ..models.catalogue import search
    from ..units import count_text

    rows = search(word.strip("\"'").replace("/", " "))
    items = [
        Item(
            row.id,
            _value(row.id, spot, syntax),
            spot.start,
            spot.end,
            "value",
            f"{count_text(row.parameters)} parameters" if row.parameters else row.model_type,
        )
        for row in rows[:MAX_MODELS]
    ]
    return Completion(items, len(rows) <= MAX_MODELS)
