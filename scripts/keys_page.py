"""`docs/format-keys.md`: which field of the job each key of a format says, as the tables of the formats have it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpulint.formats.core.bindings.rows import Key

HEAD = """<!-- Made by scripts/build.py from the tables of linter/gpulint/formats. -->
# Keys that decide memory

For each format: the keys that gpulint reads, the [field of the job](rules/facts.md) that each one sets, what may be
written there, and what the field is where the key is missing ("-" where another key or the release decides).
spellings stand behind the newest. A key that is not listed does not change the memory of a GPU, or is read together
with one that is."""


def page() -> str:
    """The page in Markdown."""
    from gpulint.formats.core.registry import FORMAT_NAMES, find

    found = [(form.title, form.table) for form in map(find, FORMAT_NAMES) if form.table is not None]
    parts = [_section(title, list(dict.fromkeys(map(_cells, table.key_rows())))) for title, table in found]
    return "\n\n".join([HEAD, *parts]) + "\n"


def _section(title: str, rows: list[tuple[str, ...]]) -> str:
    return "\n".join([f"## {title}", "", *_table(("key", "field", "value", "field where it is missing"), rows)])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield _line(head)
    yield _line(("---",) * len(head))
    yield from map(_line, rows)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Key) -> tuple[str, ...]:
    from gpulint.formats.core.bindings.help import default_of, words_of
    from gpulint.formats.core.bindings.rows import LEAVE

    words = ", ".join(_code(word) for word in words_of(row) if not isinstance(word, bool))
    default = default_of(row)
    return (
        ", ".join(map(_code, row.names)), _code(row.field), words or row.kind.name,
        "-" if default is LEAVE else _code(default),
    )  # fmt: skip


def _code(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return f"`{text}`"
