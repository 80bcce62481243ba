"""Options of a command that nothing here knows, where their names say that they decide what memory depends on.

What such an option may decide is open, unless another key states it: not what holds without the option.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..formats.core.placeholders import is_blank
from ..job.origin import Origin
from ..job.weights import Quantization
from ..source.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..formats.core.format import Reading
    from ..source.node import Entry
    from .launch import Launch

_ROWS = [
    (re.compile(row["words"]), re.compile(row["not"]) if "not" in row else None, row)
    for row in read_table(__file__, "option_words.json")["rows"]
]
_OPEN = frozenset({"default", "assumed"})
"""Origins of a fact that nothing states."""


def _pass_over(reading: Reading, program: str) -> None:
    """Of a program that passes over options which it does not know, tell only those that are known ones misspelt: the
    others may be those of a parser around it."""
    told = {"treatment": "ignored", "upstream": program}
    kept = [item for item in reading.problems if item.kind != "unknown-key" or item.values.get("slip") == "yes"]
    reading.problems[:] = [
        item if item.kind != "unknown-key" else item._replace(values=item.values | told) for item in kept
    ]


def leave_open(reading: Reading, launch: Launch | None) -> None:
    """Leave open what an option of the command may decide that no release which was read has, nor the format."""
    if launch is not None and launch.ignores:
        _pass_over(reading, launch.program)
    for name, entry, refused in _unknown(reading):
        plain = name.replace("-", "_").lower()
        row = next((row for words, but, row in _ROWS if words.search(plain) and not (but and but.search(plain))), None)
        if row is None or (refused and "own" in row) or (entry is not None and not _says(entry)):
            continue
        if "fact" in row:
            _open(reading, row, name, entry)
        elif refused or _splits(entry):
            reading.job.unread = f"`{name}` is an option that gpulint does not know, and may split the job"
            reading.problems[:] = [item for item in reading.problems if item.kind != "contradiction"]


def _unknown(reading: Reading) -> Iterator[tuple[str, Entry | None, bool]]:
    """The unknown options of the command by name, and whether the program stops at them, whatever they say."""
    if reading.config.syntax != "flags":
        return
    for item in reading.problems:
        known = item.values.get("since") or item.values.get("until")
        if item.kind == "unknown-key" and item.values.get("treatment") != "ignored" and not known:
            yield item.key, reading.config.root.find(item.key), True
    for entry in reading.foreign:
        yield str(entry.key.value), entry, False


def _says(entry: Entry) -> bool:
    """Whether an option says anything: `--offload False`, or none at all, leaves the program as it is."""
    return entry.value.plain() not in (None, "", "none", "None", [])


def _splits(entry: Entry | None) -> bool:
    """Whether a degree is more than one, or a switch is on."""
    value = entry.value.plain() if entry is not None else None
    return value is True or (value not in (None, 0, 1) and str(value).lower() not in ("none", "no", "off"))


def _open(reading: Reading, row: dict[str, Any], name: str, entry: Entry | None) -> None:
    """The fact as the option's name has it, or as it was, and with it all that it may be."""
    job, path = reading.job, row["fact"]
    origin = job.origins.get(path)
    if origin is None or origin.kind not in _OPEN or path in job.unstated:
        return
    if row.get("method", job.method) != job.method:
        return
    written = entry.value.plain() if entry is not None else None
    values = tuple(Quantization(**value) if isinstance(value, dict) else value for value in row["values"])
    value = job.get(path)
    if "on" in row and (written is True or written is False) and not is_blank(written):
        value = row["on"] if written else row["off"]
    note = f"`{name}`, an option of the script, may decide it"
    kind = "guessed" if "on" in row else origin.kind
    job.assign(path, value)
    found = Origin(kind, note, key=name, values=values)
    if entry is not None:
        found = found._replace(file=reading.config.path, span=entry.value.span, key_span=entry.key.span)
    job.origins[path] = found
    job.unstated.append(path)
