"""Typed values of a flat config: one key, one argument of the tool that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .coercion import as_boolean, as_integer, as_number
from .placeholders import is_blank, is_whole_blank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.node import Entry, Node


class Given(NamedTuple):
    """A value that a file states: what it says, where, and the dotted key as the user would search for it."""

    value: Any
    entry: Entry
    key: str


class Arguments:
    """The keys of a mapping, the last of equal ones counting, under one spelling.

    With `dashes` two spellings of one argument are equal (`max-model-len` and `max_model_len`); `prefix` is the dotted
    place of the mapping in its file. `asked` are those that are there and that somebody asked for.
    """

    __slots__ = ("asked", "dashes", "entries", "prefix")

    def __init__(self, node: Node | None, prefix: str = "", *, dashes: bool = False) -> None:
        self.prefix = prefix
        self.dashes = dashes
        self.asked: set[str] = set()
        self.entries: dict[str, Entry] = {}
        for entry in node.entries() if node is not None else ():
            if isinstance(entry.key.value, str):
                self.entries[self._name(entry.key.value)] = entry

    def __contains__(self, name: str) -> bool:
        return self._name(name) in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def raw(self, *names: str) -> Given | None:
        """The first of `names` that the file has, whatever its value (null included).

        A dotted name that is no key itself stands inside the mapping that its head names.
        """
        for name in names:
            entry = self.entries.get(self._name(name))
            if entry is not None:
                written = str(entry.key.value)
                self.asked.add(written)
                return Given(entry.value.plain(), entry, f"{self.prefix}.{written}" if self.prefix else written)
            inside = self._inside(name)
            if inside is not None:
                return inside
        return None

    def _inside(self, name: str) -> Given | None:
        head, dot, rest = name.partition(".")
        return self.mapping(head).raw(rest) if dot else None

    def blank(self, *names: str) -> Given | None:
        """The first of `names` that the file has, where another program fills its value in (`${BATCH}`)."""
        given = next(self._each(names), None)
        return given if given is not None and is_blank(given.value) else None

    def integer(self, *names: str, least: int | None = None) -> Given | None:
        """A whole number, `least` or more; None for null and for what is none."""
        for given in self._each(names):
            number = as_integer(given.value)
            if number is not None and (least is None or number >= least):
                return given._replace(value=number)
        return None

    def number(self, *names: str) -> Given | None:
        """A finite number."""
        for given in self._each(names):
            number = as_number(given.value) if not isinstance(given.value, bool) else None
            if number is not None and abs(number) != float("inf") and number == number:
                return given._replace(value=float(number))
        return None

    def flag(self, *names: str) -> Given | None:
        """A boolean, as a word too."""
        for given in self._each(names):
            value = as_boolean(given.value) if not isinstance(given.value, (dict, list)) else None
            if value is not None:
                return given._replace(value=value)
        return None

    def text(self, *names: str) -> Given | None:
        """A string that says something; not one that is filled in when the job starts."""
        for given in self._each(names):
            if isinstance(given.value, str) and given.value.strip() and not is_whole_blank(given.value):
                return given
        return None

    def words(self, *names: str) -> Given | None:
        """A list of strings, or one string with commas, as a list."""
        for given in self._each(names):
            items = given.value.split(",") if isinstance(given.value, str) else given.value
            if isinstance(items, list) and items and all(isinstance(i, str) and not is_whole_blank(i) for i in items):
                return given._replace(value=[item.strip() for item in items if item.strip()])
        return None

    def mapping(self, *names: str) -> Arguments:
        """The arguments inside a key that holds a mapping; none when it holds something else."""
        given = self.raw(*names)
        if given is None or not given.entry.value.is_mapping:
            return Arguments(None)
        return Arguments(given.entry.value, given.key, dashes=self.dashes)

    def is_on(self, *names: str) -> bool:
        """Whether a boolean is stated and true."""
        given = self.flag(*names)
        return given is not None and bool(given.value)

    def _each(self, names: tuple[str, ...]) -> Iterator[Given]:
        for name in names:
            given = self.raw(name)
            if given is not None and given.value is not None:
                yield given

    def _name(self, name: str) -> str:
        return name.replace("-", "_") if self.dashes else name
