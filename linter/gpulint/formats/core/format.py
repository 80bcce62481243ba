"""What a config format is, and how one becomes a Job whose every field knows its origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...job.job import Job
from ...job.origin import Origin
from ...source.document import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...hardware.gpu import Gpu
    from ...repository.pins import Pin
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ...source.node import Entry, Span
    from .arguments import Arguments

    Describe = Callable[["Reading", dict[str, Any]], str | None]
    Edits = Callable[["Reading", dict[str, Any]], list[Edit] | None]


class NoJobError(SourceError):
    """A file of a known format that starts no job that a Job can say: a fragment, an evaluation, a diffusion model.

    `reason` says in one line which; the file counts as skipped.
    """


class Problem(NamedTuple):
    """Something about a file itself that rules can report: rules iterate over them by `kind`.

    kind      unknown-key, wrong-type, unresolved-reference, contradiction ...
    key       the dotted key
    span      where
    values    named values for the message (`suggestion`, `expected`, `path` ...)
    path      the file, where it is not the checked one
    """

    kind: str
    key: str
    span: Span
    values: dict[str, str]
    path: str | None = None


@dataclass(slots=True)
class Reading:
    """One file read by its format: the Job, the documents it came from, and what was odd about them.

    `config` is the checked file; `references` are the files it names, by the key that names them (`deepspeed` ->
    Document). `program` is what reads the config, where a launcher says so. `launch` is what rules may read of the
    launch by its dotted name (`environment.NCCL_DEBUG`, `container.image`); None where no launcher is known. `blanks`
    are the keys that the format asked for and the start fills in, without a field of the Job that could say what it may
    be. `foreign` are options of the command that the format knows nothing of, as a script of its own has them.
    `options` are those of a server by its own names; None where a file's keys have one spelling each.
    """

    format: str
    upstream: str
    config: Document
    job: Job
    references: dict[str, Document] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    program: str = ""
    launch: dict[str, tuple[Any, Origin]] | None = None
    blanks: dict[str, Entry] = field(default_factory=dict)
    foreign: list[Entry] = field(default_factory=list)
    options: Arguments | None = None

    @property
    def further(self) -> str:
        """The word of the command that may add options when it runs; "" for none."""
        return self.config.root.open if self.config.roots else ""


class Project(NamedTuple):
    """What a format knows besides its own file: the hardware it was given, and how to reach other files.

    `gpu`, `gpus` and `nodes` come from the command line, a comment or the settings; None where nobody said.
    `open(reference, from_path)` reads the file that a config names, trying the folder of the naming file and those
    above it up to the project root; it raises SourceError when the file is there but cannot be read, returns None
    when it is not there or lies outside the project root.
    `launcher` holds the options of the `accelerate launch`, `torchrun` or `deepspeed` that starts the config, as flags;
    `program` is what reads it: "trl dpo", the path of a script, a module; "" where no launcher says.
    `versions` are those of packages that the launcher, the settings or the repository state; `pins` are the
    repository's among them. `asked` is the number of GPUs that the
    launcher asks for, which a server may use or not. `alone`: the command starts a Python script as one process.
    `loads`: the script's source is here and says how it loads its model.
    """

    root: str
    gpu: Gpu | None
    gpus: int | None
    nodes: int | None
    open: Callable[[str, str], Document | None]
    launcher: Document | None = None
    versions: dict[str, str] = {}  # noqa: RUF012  (never changed)
    program: str = ""
    asked: int | None = None
    alone: bool = False
    pins: Mapping[str, Pin] = {}
    loads: bool = False


class Rows(Protocol):
    """A format's table, as far as others than its reader look at it (`bindings/rows.py`)."""

    @property
    def rows(self) -> tuple[Any, ...]:
        """Keys and the Job fields that they say."""

    def key_rows(self) -> Iterator[Any]:
        """The rows that say a key."""


class Format(NamedTuple):
    """A config format. Its module holds one of these as `FORMAT`.

    read        the Reading; raises SourceError where the file contradicts the format beyond use
    edits       the edits that make a Job change in this format's own words; None where it cannot say it
    describe    the same change in the format's words for people: "adapter: qlora, load_in_4bit: true"
    hardware    where its files say the GPUs, for the docs
    serves      whether it starts a server, which uses as many GPUs as its parallel degrees say
    table       its keys and the Job fields that they say
    """

    name: str
    title: str
    upstream: str
    read: Callable[[Document, Project], Reading]
    describe: Describe
    edits: Edits
    hardware: str = "not in the file"
    serves: bool = False
    table: Rows | None = None

    @classmethod
    def of_table(
        cls,
        name: str,
        title: str,
        upstream: str,
        read: Callable[[Document, Project], Reading],
        table: Rows,
        hardware: str = "not in the file",
        *,
        serves: bool = False,
    ) -> Format:
        """A format whose table says how changes are written, too; what writes them is imported with the first one."""

        def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
            words: str | None = import_module(".bindings.changes", __package__).describe(table, reading, changes)
            return words

        def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
            made: list[Edit] | None = import_module(".bindings.changes", __package__).edits(table, reading, changes)
            return made

        return cls(name, title, upstream, read, describe, edits, hardware, serves, table)


class JobBuilder:
    """Fills a Job field by field, noting where each value comes from.

    `upstream` names the tool and version whose defaults `default` records.
    """

    __slots__ = ("document", "job", "upstream")

    def __init__(self, document: Document, upstream: str) -> None:
        self.document = document
        self.upstream = upstream
        self.job = Job()

    def from_entry(self, path: str, value: Any, entry: Entry, key: str, note: str = "") -> None:
        """Set a field from a key of the file; `key` is the dotted key as the user would search for it."""
        self._set(path, value)
        self.job.origins[path] = Origin(
            "file", note, entry.key.path or self.document.path, key, entry.value.span, entry.key.span
        )

    def default(self, path: str, value: Any, note: str = "") -> None:
        """Set a field to the upstream default."""
        self._set(path, value)
        self.job.origins[path] = Origin("default", note or f"default of {self.upstream}")

    def versions(self, usual: Mapping[str, str], stated: Mapping[str, str], note: str) -> None:
        """Set the packages' versions: the `usual` ones, which `note` explains, unless the run states others."""
        for name, version in usual.items():
            self.default(f"versions.{name}", version, note)
        for name, version in stated.items():
            self.derived(f"versions.{name}", version, "the version that the launcher or the settings state")
        self.default("versions", self.job.versions, note)

    def derived(self, path: str, value: Any, note: str, like: str | None = None) -> None:
        """Set a field that follows from others; `like` names the field whose place it shares."""
        self._set(path, value)
        base = self.job.origins.get(like) if like else None
        self.job.origins[path] = base._replace(kind="derived", note=note) if base else Origin("derived", note)

    def assumed(self, path: str, value: Any, note: str) -> None:
        """Set a field that nothing states."""
        self._set(path, value)
        self.job.origins[path] = Origin("assumed", note)

    def _set(self, path: str, value: Any) -> None:
        self.job.assign(path, value)
