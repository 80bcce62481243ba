"""A change of the Job as keys of the file: the inverse of its table's rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ....upstream.key_releases.table import takes
from ..key_changes import ZERO, UntakenKeyError, edits_of, spoken
from .kinds import Unsaid
from .rows import LEAVE, Rest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....job.job import Job
    from ....source.document import Document
    from ....source.edit.replacement import Edit
    from ..format import Reading
    from ..key_changes import Keys
    from .rows import Key, Table

    Places = list[tuple[Document, Keys]]

ACCUMULATION = "gradient_accumulation_steps"


def describe(table: Table, reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change for people, in the format's keys; None where it cannot say it."""
    said = _told(reading, _places(table, reading, changes, table.named))
    return said if said or table.told is None else spoken(table.told(reading, changes))


def edits(table: Table, reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None where the format cannot say it or a file cannot be edited safely."""
    found = _places(table, reading, changes)
    made = [edits_of(document, keys, nulls=table.nulls) for document, keys in found or ()]
    return None if not made or None in made else [edit for part in made for edit in part or ()]


def _places(
    table: Table, reading: Reading, changes: dict[str, Any], named: Callable[[Reading, Keys], Keys] | None = None
) -> Places | None:
    """The files to change and their keys, under other names where asked; None where a part cannot be said."""
    found = table.elsewhere(reading, changes) if table.elsewhere is not None else None
    document, others, rest = found or (None, None, changes)
    keys = wanted_keys(table, reading, rest) if rest else None
    if rest and not keys:
        return None
    if keys and named is not None:
        null = "null" if table.nulls else None
        keys = {key: null if value is None else value for key, value in named(reading, keys).items()}
    own = [(reading.config, keys)] if keys else []
    return [*own, (document, others)] if document is not None and others else own


def _told(reading: Reading, found: Places | None) -> str | None:
    """The keys for people, each with the name of its file where that is not the checked one."""
    texts = [(document, spoken(keys)) for document, keys in found or ()]
    said = (
        text if document is reading.config else f"{text} in {os.path.basename(document.path)}"
        for document, text in texts
        if text is not None
    )  # fmt: skip
    return "; ".join(said) or None


def wanted_keys(table: Table, reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys to write for a change, None for those to take out; None when a part of it is not the format's to say.

    Raises UntakenKeyError where the release that runs does not take a key or a value of them.
    """
    if table.refuses is not None and table.refuses(reading, changes):
        return None
    if table.brings is not None:
        changes = {**table.brings(reading, changes), **changes}
    wanted: Keys = {}
    zero = {path: value for path, value in changes.items() if path.startswith(ZERO)} if table.zero else {}
    if table.zero and zero:
        said = table.zero(reading, zero)
        if said is None:
            return None
        wanted |= said
    job = reading.job.with_changes(changes)
    for path, value in changes.items():
        if path in zero or path in table.ignored:
            continue
        group = next((paths for paths in table.together if path in paths), ())
        own = table.says[path](reading, value) if path in table.says else LEAVE
        if group:
            part = table.together[group](reading, {name: changes[name] for name in group if name in changes})
        elif not isinstance(own, Rest):
            part = own
        elif path == ACCUMULATION and table.total:
            part = _whole_batch(table, reading, changes)
        else:
            part = _of_rows(table, reading, path, value, job)
        if part is None:
            return None
        wanted |= part
    root = reading.config.root
    spelled = {table.spelled(reading, key): value for key, value in wanted.items()}
    _check_taken(reading, spelled)
    return {key: value for key, value in spelled.items() if value is not None or root.find(key) is not None}


def _check_taken(reading: Reading, wanted: Keys) -> None:
    for key, value in wanted.items():
        if value is not None and not _taken(reading, key, value):
            raise UntakenKeyError(key)


def _taken(reading: Reading, key: str, value: Any = None) -> bool:
    """Whether the release that runs takes a key, what is below it, or a word as its value."""
    schema, versions = reading.format, reading.job.versions
    if isinstance(value, dict):
        return takes(schema, key, versions) and all(
            _taken(reading, f"{key}.{name}", part) for name, part in value.items()
        )
    if isinstance(value, str) and not takes(schema, key, versions, value):
        return False
    return takes(schema, key, versions)


def _of_rows(table: Table, reading: Reading, path: str, value: Any, job: Job) -> Keys | None:
    """The key of the row that says the field: one that the file says it by before one that would be added.

    Keys of rows before it, which the tool lets win, are taken out.
    """
    rows = [row for row in table.key_rows() if row.field == path and (row.when is None or row.when(job))]
    sayable = {index: said for index, row in enumerate(rows) if not isinstance(said := row.written(value, job), Unsaid)}
    saying = [index for index, row in enumerate(rows) if _says(table, reading, row)]
    ordered = [index for index in sayable if index in saying] + [index for index in sayable if rows[index].adds]
    if not ordered:
        return None
    chosen = ordered[0]
    gone: Keys = {_name(table, reading, rows[index]): None for index in saying if index < chosen}
    return {**gone, _name(table, reading, rows[chosen]): sayable[chosen]}


def _says(table: Table, reading: Reading, row: Key) -> bool:
    """Whether the file says the row's field by its key."""
    for name in row.names:
        entry = reading.config.root.find(table.spelled(reading, name))
        written = entry.value.plain() if entry is not None else None
        if written is not None and not row.kind.blank(written):
            said = row.kind.read(written)
            return not isinstance(said, Unsaid) and not isinstance(row.value(said, reading.job), Unsaid)
    return False


def _name(table: Table, reading: Reading, row: Key) -> str:
    """The name under which the file has the key, else the newest that the release takes."""
    root = reading.config.root
    written = next((name for name in row.names if root.find(table.spelled(reading, name)) is not None), None)
    return written or next((name for name in row.names if _taken(reading, table.spelled(reading, name))), row.names[0])


def _whole_batch(table: Table, reading: Reading, changes: dict[str, Any]) -> Keys:
    """Nothing where the file states the rows of a step and they stay the same, else those rows."""
    job, plan = reading.job, reading.job.parallelism
    rows = changes[ACCUMULATION] * changes.get("micro_batch_size", job.micro_batch_size or 1)
    stated = reading.config.root.find(table.spelled(reading, table.total))
    same = rows == job.gradient_accumulation_steps * (job.micro_batch_size or 1)
    if same and stated is not None and stated.value.value is not None:
        return {}
    ranks = max(1, (job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    return {table.total: rows * ranks}
