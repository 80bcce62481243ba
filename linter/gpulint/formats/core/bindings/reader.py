"""Reads one file into a Job: the rows of its format's table, and the keys that steps ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....job.origin import Origin
from ....upstream.behaviour import default_of
from .. import keys as schemas
from ..arguments import Arguments
from ..format import JobBuilder, Problem, Project, Reading
from ..placeholders import is_blank
from ..sections import Sections
from .kinds import FLAG, Unsaid
from .sources import Assumed, Default, Derived, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from ....source.document import Document
    from ....upstream.behaviour import Default as ReleaseDefault
    from ..arguments import Given
    from .kinds import Kind
    from .sources import Source

    Blank = Callable[["Reader", str, Given, Source], Source]


class Answer(NamedTuple):
    """What the file says for a key: a value of its kind, or why there is none; `given` is what is written."""

    value: Any
    given: Given | None

    @property
    def says(self) -> bool:
        """Whether there is a value."""
        return not isinstance(self.value, Unsaid)


_ABSENT = Answer(Unsaid.ABSENT, None)

AS_WRITTEN: Any = object()
"""Stands for the value that a key has in the file."""


class Bound:
    """A row of a table, which fills one field."""

    __slots__ = ()

    def apply(self, reader: Reader) -> None:
        """Set the field, unless a row before it has set it."""
        raise NotImplementedError


class Reader(JobBuilder):
    """A file, the Job that it fills, and what was odd about it.

    Every field is set in one of four ways, each with its origin: `set` from the file, `default`, `derived`, `assumed`.
    None is a value like any other.

    document  what is read; its keys may be those of `checked`, the file itself, with interpolations carried out
    keys      the arguments that rows and steps ask for; by default the dotted keys of `document`
    shipped   the path of a config that the tool itself ships below the user's: what it says is the tool's default
    defaults  what an absent key means, where that depends on the program that reads the file
    blank     what holds for a key that is filled in when the job starts and whose row says nothing of it
    under     what was set before, where the rows say it anew (`over`)
    open      the fields whose key is filled in when the job starts, with what they may be
    """

    __slots__ = ("blank", "defaults", "keys", "open", "project", "reading", "shipped", "under")

    def __init__(
        self,
        document: Document,
        project: Project,
        name: str,
        upstream: str,
        *,
        checked: Document | None = None,
        keys: Arguments | None = None,
        shipped: str | None = None,
        defaults: Mapping[str, Any] | None = None,
        blank: Blank | None = None,
    ) -> None:
        super().__init__(document, upstream)
        self.project = project
        self.reading = Reading(name, upstream, checked or document, self.job)
        self.keys: Arguments = keys if keys is not None else Sections(document.root)
        self.shipped = shipped
        self.defaults = defaults or {}
        self.blank = blank
        self.under: Mapping[str, Origin] = {}
        self.open: dict[str, tuple[Given, tuple[Any, ...]]] = {}

    @classmethod
    def over(cls, builder: JobBuilder, document: Document, keys: Arguments, upstream: str) -> Self:
        """A Reader of what a tool hands to another one, whose rows say anew what `builder` has set in the same Job."""
        project = builder.project if isinstance(builder, Reader) else Project("", None, None, None, lambda *_: None)
        reader = cls(document, project, "", upstream, keys=keys)
        reader.job, reader.under = builder.job, dict(builder.job.origins)
        return reader

    def bind(self, rows: Iterable[Bound | Callable[[Reader], None]]) -> None:
        """Fill the Job from rows, in their order; a step that is no row reads keys itself."""
        for row in rows:
            if isinstance(row, Bound):
                row.apply(self)
            else:
                row(self)

    def has_set(self, field: str) -> bool:
        """Whether a field has its value, or, of a part that may be None, one of its fields has."""
        origins = self.job.origins
        if field in origins:
            return origins[field] is not self.under.get(field)
        return field.rpartition(".")[2] in _PARTS and any(path.startswith(f"{field}.") for path in origins)

    def beside(self, document: Document, keys: Arguments, upstream: str = "") -> Reader:
        """A Reader of another file, or of keys of another tool, that fills the same Job."""
        other = Reader(document, self.project, self.reading.format, upstream or self.upstream, keys=keys)
        other.job, other.reading = self.job, self.reading
        other.defaults, other.blank, other.open = self.defaults, self.blank, self.open
        return other

    def section(self, name: str) -> Reader:
        """A Reader of the keys inside a section, none where it is no mapping, that fills the same Job."""
        given = self.keys.raw(name)
        inside = given is not None and given.entry.value.is_mapping
        keys = Sections(given.entry.value, given.key) if given and inside else Arguments(None)
        return self.beside(self.document, keys, self.upstream)

    def ask(self, kind: Kind, *names: str) -> Answer:
        """What the first of the names says that says a value of the kind; without one, why there is none.

        A blank tells more than a wrong value, that more than a null, and that more than an absence.
        """
        found: list[Answer] = []
        for name in names:
            given = self.keys.raw(name)
            if given is not None:
                answer = _answer(kind, given)
                if answer.says:
                    return answer
                found.append(answer)
        best = min(found, key=lambda answer: _TELLS.index(answer.value), default=_ABSENT)
        if best.given is not None and best.value is Unsaid.BLANK and is_blank(best.given.value):
            self.reading.blanks.setdefault(best.given.key, best.given.entry)
        return best

    def leave_open(self, field: str, given: Given, values: tuple[Any, ...]) -> None:
        """A key that the start fills in says the field: whatever is taken for it, it may be one of `values`, too."""
        if is_blank(given.value):
            self.open[field] = (given, values)
            self.reading.blanks.pop(given.key, None)

    def default(self, path: str, value: Any, note: str = "") -> None:
        """Set a field to the upstream default."""
        super().default(path, value, note)
        self._reopen(path, "")

    def derived(self, path: str, value: Any, note: str, like: str | None = None) -> None:
        """Set a field that follows from others."""
        super().derived(path, value, note, like)
        self._reopen(path, note)

    def assumed(self, path: str, value: Any, note: str) -> None:
        """Set a field that nothing states."""
        super().assumed(path, value, note)
        self._reopen(path, note)

    def _reopen(self, path: str, note: str) -> None:
        if path in self.open:
            given, values = self.open[path]
            if "filled in" not in note:  # the row's own words are kept, not those of what holds for an absent key
                note = f"{given.value} is filled in when the job starts"
            file, entry = given.entry.key.path or self.document.path, given.entry
            self.job.origins[path] = Origin("assumed", note, file, given.key, entry.value.span, entry.key.span, values)
            self._unstated(path)

    def _unstated(self, path: str) -> None:
        if path not in self.job.unstated:
            self.job.unstated.append(path)

    def given(self, kind: Kind, *names: str) -> Given | None:
        """The value and its place, where there is a value."""
        answer = self.ask(kind, *names)
        return answer.given if answer.says else None

    def value(self, kind: Kind, *names: str, default: Any = None) -> Any:
        """The value, or what stands for none."""
        answer = self.ask(kind, *names)
        return answer.value if answer.says else default

    def on(self, *names: str) -> Given | None:
        """The switch and its place, where it is on."""
        given = self.given(FLAG, *names)
        return given if given is not None and given.value else None

    def is_stated(self, given: Given | None) -> bool:
        """Whether the user's file says it, and not the config that the tool ships."""
        return given is not None and (self.shipped is None or given.entry.key.path != self.shipped)

    def set(self, field: str, given: Given | None, value: Any = AS_WRITTEN, note: str = "") -> None:
        """Set a field from a key; to `value` where that is not what is written. Without the key it is the default."""
        if given is None and value is AS_WRITTEN:
            raise ValueError(f"{field}: no key says a value")
        said = given.value if given is not None and value is AS_WRITTEN else value
        if given is not None and self.is_stated(given):
            self.from_entry(field, said, given.entry, given.key, note)
        else:
            self.default(field, said, note)

    def put(self, field: str, source: Any, given: Given | None = None) -> None:
        """Set a field from a Source, or to a plain value, which is the upstream's default."""
        if isinstance(source, Written):
            self.set(field, given, source.value, source.note)
        elif isinstance(source, Derived):
            self.derived(field, source.value, source.note, source.like)
        elif isinstance(source, Assumed):
            self.assumed(field, source.value, source.note)
        else:
            default = source if isinstance(source, Default) else Default(source)
            self.default(field, default.value, default.note)
        if isinstance(source, Default | Assumed) and source.unstated:
            self._unstated(field)

    def contradiction(self, given: Given, other: str, message: str) -> None:
        """Report a key that contradicts another; `message` says what follows."""
        written = given.entry.value.raw or str(given.value)
        values = {"value": written, "other": other, "message": message, "upstream": self.upstream}
        span = given.entry.value.span
        self.reading.problems.append(Problem("contradiction", given.key, span, values, given.entry.key.path))


_PARTS = frozenset({"quantization", "adapter", "zero", "fsdp", "inference"})
"""Parts of a Job that may be None."""

_TELLS = (Unsaid.BLANK, Unsaid.OTHER, Unsaid.WRONG, Unsaid.NULL)
"""What tells most of a key first."""


def _answer(kind: Kind, given: Given) -> Answer:
    written = given.value
    if written is None:
        return Answer(Unsaid.NULL, given)
    if kind.blank(written):
        return Answer(Unsaid.BLANK, given)
    value = kind.read(written)
    return Answer(value, given if isinstance(value, Unsaid) else given._replace(value=value))


def by_release(rows: Sequence[ReleaseDefault], name: str, newest: Any) -> Callable[[Reader], Any]:
    """The default of a name in the release that the run states: a row of `upstream`, else the newest's."""
    package = rows[0].package

    def source(reader: Reader) -> Any:
        stated = reader.project.versions.get(package) or reader.job.versions.get(package)
        return default_of(rows, stated, name, newest)

    return source


def by_program(name: str) -> Callable[[Reader], Any]:
    """What an absent key means to the program that reads the file: one of the Reader's `defaults`."""
    return lambda reader: reader.defaults[name]


def by_schema(schema: str, key: str) -> Callable[[Reader], Any]:
    """The default that a schema has for a dotted key."""
    return lambda _: schemas.default(schema, key)
