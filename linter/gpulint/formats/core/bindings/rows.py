"""The rows of a format's table: which key says which field of the Job, and what holds where no key does.

Rows are data: `Reader.bind` fills a Job from them, `changes.py` writes a change of the Job back from the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .kinds import Kind, Unsaid
from .reader import Bound
from .sources import LEAVE, NEVER, Assumed, Default, Derived, Rest, Source, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ....job.job import Job
    from ....source.document import Document
    from ..arguments import Given
    from ..format import Reading
    from ..key_changes import Keys
    from .reader import Answer, Reader

__all__ = [
    "LEAVE", "NEVER", "Assumed", "Condition", "Default", "Derived", "Fixed", "Key", "Rest", "Row", "Say", "SayAll",
    "Source", "Step", "Table", "Written", "among", "only", "renamed", "says_as_is",
    "within",
]  # fmt: skip

Condition = Callable[["Job"], bool]
"""Asked of what is read so far, and of the changed Job where a change is written."""

Step = Callable[["Reader"], None]
"""What rows cannot say: a function that reads keys itself. The rows after it leave alone what it has set."""


@dataclass(frozen=True, slots=True)
class Key(Bound):
    """One key, or one under several names, that says one field.

    Rows apply in order and the first that sets a field wins, so several rows of one field stand in the order in which
    the tool lets their keys win.

    field    the Job field
    keys     the dotted key; several where older releases spell it otherwise, the newest first
    kind     what is written there
    default  what holds where the key says nothing: a value (the upstream's default), a `Source`, LEAVE for a later row
             to say, or a function of the Reader that gives one of these
    to       a written value -> the field's: a mapping, for which all else is OTHER, or a function of value and Job,
             which may give a `Source`, or `Unsaid.OTHER`
    back     the reverse, where a function cannot be turned round by itself: a mapping from the field's value, a
             function of value and Job, or NEVER
    when     whether the row applies
    note     for people, of a value that the file says
    other    what holds for a value that the row does not know (OTHER) where that is not the default: a value, a
             `Source`, or a function of what is written
    null     the same for a written null
    blank    the same for a value that is filled in when the job starts; a plain value is `Assumed`, and a function is
             given the Reader, too
    adds     whether a change may add the key to a file that has none of its names
    """

    field: str
    keys: str | tuple[str, ...]
    kind: Kind
    default: Any = LEAVE
    to: Mapping[Any, Any] | Callable[[Any, Job], Any] | None = None
    back: Mapping[Any, Any] | Callable[[Any, Job], Any] | Rest | None = None
    when: Condition | None = None
    note: str = ""
    other: Any = LEAVE
    null: Any = LEAVE
    blank: Any = LEAVE
    adds: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The key under all its names, the newest first."""
        return (self.keys,) if isinstance(self.keys, str) else self.keys

    def value(self, said: Any, job: Job) -> Source | Unsaid:
        """The field's value for a value of the kind."""
        found = said
        if isinstance(self.to, Mapping):
            found = _looked_up(self.to, said)
        elif self.to is not None:
            found = self.to(said, job)
        if isinstance(found, Unsaid | Source):
            return found
        return Written(found, self.note)

    def written(self, value: Any, job: Job) -> Any:
        """What to write for a value of the field; Unsaid where this key has no word for it."""
        if self.back is NEVER:
            return Unsaid.OTHER
        said: Any = value
        if isinstance(self.back, Mapping):
            said = _looked_up(self.back, value)
        elif self.back is not None and not isinstance(self.back, Rest):
            said = self.back(value, job)
        elif isinstance(self.to, Mapping):
            said = next((key for key, found in self.to.items() if _same(found, value)), Unsaid.OTHER)
        elif self.to is not None:
            return Unsaid.OTHER
        return said if isinstance(said, Unsaid) else self.kind.write(said)

    def apply(self, reader: Reader) -> None:
        """Set the field from the file, or to the default, unless a row before it has set it."""
        if reader.has_set(self.field) or (self.when is not None and not self.when(reader.job)):
            return
        answer = reader.ask(self.kind, *self.names)
        if answer.given is not None:
            value = self._read(reader, answer, answer.given)
            if value is not LEAVE:
                reader.put(self.field, value, answer.given)
                return
        _put(reader, self.field, self.default)

    def _read(self, reader: Reader, answer: Answer, given: Given) -> Any:
        """What a key that is there says; LEAVE for what holds of an absent one."""
        value = self.value(answer.value, reader.job) if answer.says else answer.value
        if value is Unsaid.BLANK:
            stated = self._values(map(self.kind.read, given.entry.value.may_be), reader.job)
            reader.leave_open(self.field, given, stated or self._may_be(reader.job))
            note = f"{given.value} is filled in when the job starts"
            return Assumed(_largest(stated), note) if stated else self._blank(reader, given)
        if not isinstance(value, Unsaid):
            return value
        said = {Unsaid.OTHER: self.other, Unsaid.NULL: self.null}.get(value, LEAVE)
        said = said(given.value) if callable(said) else said
        return said if said is LEAVE or isinstance(said, Source) else Written(said)

    def _may_be(self, job: Job) -> tuple[Any, ...]:
        """The field's values for the few that a key of the kind has; none where they are without number."""
        if self.kind.name not in _FEW:
            return ()
        return self._values(self.kind.samples, job)

    def _values(self, read: Iterable[Any], job: Job) -> tuple[Any, ...]:
        """The field's values, each once, for what a key may hold."""
        said = (self.value(value, job) for value in read if not isinstance(value, Unsaid))
        values = [source.value for source in said if not isinstance(source, Unsaid)]
        return tuple(value for number, value in enumerate(values) if value not in values[:number])

    def _blank(self, reader: Reader, given: Given) -> Any:
        source: Any = self.blank
        if source is LEAVE:
            default = _source(self.default, reader)
            if reader.blank is None or default is LEAVE:
                return LEAVE
            source = reader.blank(reader, self.field, given, default)
        elif callable(source):
            source = source(reader, given)
        if not isinstance(source, Source):
            source = Assumed(source, "{key} is filled in when the job starts")
        return source._replace(note=source.note.replace("{key}", given.key).replace("{value}", str(given.value)))


_FEW = frozenset({"true or false", "a dtype", "an attention kernel"})
"""Kinds whose samples are all that a key of the kind may say, or stand for all of it."""


@dataclass(frozen=True, slots=True)
class Fixed(Bound):
    """A field that no key says: a value (the upstream's default), a `Source`, or a function of the Reader.

    The function may give LEAVE.
    """

    field: str
    source: Any
    when: Condition | None = None

    def apply(self, reader: Reader) -> None:
        """Set the field, unless a row before it has set it."""
        if reader.has_set(self.field) or (self.when is not None and not self.when(reader.job)):
            return
        _put(reader, self.field, self.source)


def _largest(values: tuple[Any, ...]) -> Any:
    """The value that a finding is first asked for: of numbers the largest, which of lengths and batches fails first."""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return max(numbers) if len(numbers) == len(values) else values[0]


def _put(reader: Reader, field: str, stated: Any) -> None:
    source = _source(stated, reader)
    if source is not LEAVE:
        reader.put(field, source)


def _source(stated: Any, reader: Reader) -> Any:
    """A default or a fixed value as a Source."""
    found = stated(reader) if callable(stated) else stated
    return found if found is LEAVE or isinstance(found, Source) else Default(found)


Row = Key | Fixed | Step
"""One entry of a table."""

Say = Callable[["Reading", Any], "Keys | Rest | None"]
"""The keys that make one field a value; None where the format cannot say it, LEAVE for the rows to say."""

SayAll = Callable[["Reading", dict[str, Any]], "Keys | None"]
"""The keys for several fields of a change."""

Elsewhere = Callable[["Reading", dict[str, Any]], "tuple[Document, Keys, dict[str, Any]] | None"]
"""The part of a change that another file of the run says, as that file and its keys, and the rest of the change."""


def says_as_is(key: str) -> Say:
    """The value of a field under a key, whether or not the job reads it."""
    return lambda _reading, value: {key: value}


def _spelled_as_is(_reading: Reading, key: str) -> str:
    return key


def _named_as_is(_reading: Reading, keys: Keys) -> Keys:
    return keys


@dataclass(frozen=True, slots=True)
class Table:
    """A format: its rows, and what rows cannot say of changes.

    says      Job field -> the keys to write, where that is more than one row: wins over rows
    together  Job fields -> the same for all that a change says of them: a method, and what is quantised for it
    total     the key of the rows of one step of all ranks, where accumulation is what that leaves over
    brings    further Job fields that a change brings along; those of the change itself win
    ignored   Job fields that follow from others of a change
    zero      the keys for all that a change says of ZeRO together
    refuses   whether the tool's own checks would refuse the file after a change
    nulls     whether null takes a key back, where the syntax has one
    spelled   a key as the file spells it, or below the section that holds it
    named     the keys as people are told of them
    elsewhere what another file of the run says, which the checked one names or which starts it
    told      the same of a change that takes more than edits of the file: another recipe
    """

    rows: tuple[Row, ...]
    says: Mapping[str, Say] = field(default_factory=dict)
    together: Mapping[tuple[str, ...], SayAll] = field(default_factory=dict)
    total: str = ""
    brings: Callable[[Reading, dict[str, Any]], dict[str, Any]] | None = None
    ignored: frozenset[str] = frozenset()
    zero: SayAll | None = None
    refuses: Callable[[Reading, dict[str, Any]], bool] | None = None
    nulls: bool = False
    spelled: Callable[[Reading, str], str] = _spelled_as_is
    named: Callable[[Reading, Keys], Keys] = _named_as_is
    elsewhere: Elsewhere | None = None
    told: SayAll | None = None

    def key_rows(self) -> Iterator[Key]:
        """The rows that say a key."""
        return (row for row in self.rows if isinstance(row, Key))


def only(condition: Condition, *rows: Row) -> tuple[Row, ...]:
    """The rows, which apply only where the condition holds beside their own."""
    return tuple(_conditioned(condition, row) for row in rows)


def within(section: str, *rows: Row) -> tuple[Row, ...]:
    """The rows with their keys below a section of the file."""
    return tuple(
        replace(row, keys=tuple(f"{section}.{name}" for name in row.names)) if isinstance(row, Key) else row
        for row in rows
    )


def among(*values: Any) -> dict[Any, Any]:
    """The `back` of a row whose kind has words for more values than a change may write."""
    return {value: value for value in values}


def renamed(names: Mapping[str, tuple[str, ...]], *rows: Row) -> tuple[Row, ...]:
    """The rows under another tool's keys: `names` has those that stand for a key of theirs, best first."""
    return tuple(
        replace(row, keys=tuple(key for name in row.names for key in names.get(name, ())))
        if isinstance(row, Key)
        else row
        for row in rows
    )


def _conditioned(condition: Condition, row: Row) -> Row:
    if not isinstance(row, Key | Fixed):
        return lambda reader: row(reader) if condition(reader.job) else None
    own = row.when
    return replace(row, when=condition if own is None else lambda job: condition(job) and own(job))


def _looked_up(mapping: Mapping[Any, Any], value: Any) -> Any:
    try:
        return mapping.get(value, Unsaid.OTHER)
    except TypeError:  # a list or a mapping, which is no word
        return Unsaid.OTHER


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
