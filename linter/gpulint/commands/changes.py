"""`--set FIELD=VALUE`: Job fields changed at the command line."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import Any

from ..settings.settings import SettingsError


def changes_of(words: tuple[str, ...]) -> dict[str, Any]:
    """`micro_batch_size=4` and the like as Job changes, checked against the Job's fields.

    A tool's own key, `sequence_len`, is the field whose value it states.
    Raises SettingsError for a field that the Job has not (with the nearest) and for a value that it does not take.
    """
    from ..rules.facts.job_types import accepts, job_types, type_text
    from ..source.document import SourceError
    from ..source.read import parse

    kinds = job_types()
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip()
        if not equals:
            raise SettingsError(f"--set takes FIELD=VALUE, not {word!r}")
        if name not in kinds:
            name = _field_of(name) or name
        if name not in kinds:
            near = _nearest(name, list(kinds))
            advice = f"; did you mean {near}?" if near else "; `gpulint rules facts` lists them"
            raise SettingsError(f"--set: a job has no field {name!r}{advice}")
        try:
            value = parse(text.strip(), "--set", "yaml").root.plain()
        except SourceError:
            value = text.strip()
        if not accepts(kinds[name], value):
            raise SettingsError(f"--set: {name} is of the type {type_text(kinds[name])}, not {text.strip()!r}")
        changes[name] = value
    return changes


def _field_of(key: str) -> str | None:
    """The field whose value tools state under that key, as it is written; of several the one that most mean, and of
    `max_length`, which some have for a prompt, the job's own."""
    from ..formats.core.registry import FORMAT_NAMES, find

    wanted = key.lstrip("-").replace("-", "_")
    tables = (find(name).table for name in FORMAT_NAMES)
    rows = (row for table in tables if table is not None for row in table.key_rows() if row.to is None)
    said = Counter(row.field for row in rows if wanted in (name.replace("-", "_") for name in row.names))
    return max(said, key=lambda field: (said[field], -field.count("."), field)) if said else None


def _nearest(name: str, known: list[str]) -> str | None:
    """The field that was probably meant: one that ends so, or is spelled alike."""
    ending = [path for path in known if path.rpartition(".")[2] == name]
    found = ending or get_close_matches(name[:80], known, 1, 0.6)
    return found[0] if found else None
