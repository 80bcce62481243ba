"""What a launcher file starts, and on what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..formats.core.coercion import as_integer
from ..job.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..formats.core.format import Problem, Project
    from ..source.document import Document
    from ..source.node import Entry, Span


class Asked(NamedTuple):
    """Ports on which one party expects the server, which is satisfied by one of them.

    who    for people: "readinessProbe", "Service chat"
    probe  whether it is a probe, that stops or hides the container when nothing answers
    surely whether nothing but the server can listen there
    """

    ports: tuple[int, ...]
    who: str
    key: str
    path: str
    span: Span
    probe: bool = False
    surely: bool = False


@dataclass(slots=True)
class Resources:
    """What a launcher asks of the cluster for one job; None where it does not say. Each has an origin of its name.

    gpu             the kind, as the file spells it: "nvidia-h100-80gb", "A100-80GB"
    gpus_per_node   GPUs of one node, replica or pod
    nodes           nodes, replicas or pods that work together
    processes       processes over all nodes that the launch command starts, one GPU each
    host_memory     main memory of one node, bytes
    shared_memory   /dev/shm of one node, bytes
    beside          jobs with the same run at the same time on the same machine; None where nobody knows
    mounts          folder in the container -> the folder outside that stands for it
    asked_ports     where probes, Services and published ports expect the server
    told            what rules may read of the launch beside these, with its origin: `environment.NCCL_DEBUG`,
                    `container.image`, `torchrun.nnodes`
    """

    gpu: str | None = None
    gpus_per_node: int | None = None
    nodes: int | None = None
    processes: int | None = None
    host_memory: int | None = None
    shared_memory: int | None = None
    beside: object | None = None
    origins: dict[str, Origin] = field(default_factory=dict)
    told: dict[str, tuple[Any, Origin]] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    asked_ports: list[Asked] = field(default_factory=list)

    def tell(self, name: str, value: Any, file: str, key: str, span: Span) -> None:
        """Note something that only rules read."""
        self.told[name] = (value, Origin("file", "", file, key, span, span))

    def state(self, name: str, value: str | int | None, file: str, key: str, span: Span, note: str = "") -> None:
        """Set one of them from a place in a file; None says nothing."""
        if value is not None:
            setattr(self, name, value)
            self.origins[name] = Origin("file", note, file, key, span, span)

    def read(
        self,
        name: str,
        entry: Entry | None,
        file: str,
        key: str = "",
        parse: Callable[[object], str | int | None] = as_integer,
        note: str = "",
    ) -> None:
        """Set one of them from an entry that may be missing; `key` is its name for people, if not its own."""
        if entry is not None:
            self.state(name, parse(entry.value.value), file, key or str(entry.key.value), entry.value.span, note)

    @property
    def gpus(self) -> int | None:
        """GPUs of the whole job; None where the file does not say."""
        return None if self.gpus_per_node is None else self.gpus_per_node * (self.nodes or 1)

    def copy(self) -> Resources:
        """One that can be changed on its own."""
        return Resources(
            self.gpu, self.gpus_per_node, self.nodes, self.processes, self.host_memory, self.shared_memory,
            self.beside, dict(self.origins), dict(self.told), dict(self.mounts), list(self.asked_ports),
        )  # fmt: skip


class Decided(NamedTuple):
    """A value of a Job field that the launch decides by itself."""

    value: Any
    origin: Origin


class Launch(NamedTuple):
    """One job that a launcher starts.

    part       which of the file's jobs, for people: "line 12", "services.vllm", "container server"
    format     the name of the format that `config` is of
    config     what the started program reads: its flags, a mapping inside the launcher, or the file it is given with
               the flags laid over it
    resources  what it runs on
    launcher   the options of `accelerate launch`, `torchrun` or `deepspeed`, as flags; None without one
    files      other files on the way, by what names them; the launcher itself among them
    problems   what was odd on the way, such as a config file that is not there
    versions   of packages, from an image's tag or a `pip install vllm==0.9.1`
    ships      what brings those versions unless the cluster has another release of it, "KAITO 0.12.0"; "" where stated
    implied    flags that a controller adds and no file states: name with dashes -> where the value comes from
    decided    Job fields that the launch decides whatever the config says, such as `allocator.expandable_segments`
    program    what runs: the command with its subcommand ("trl dpo"), the script or the module
    file       the config file that the command names; `config` is what it is with the flags laid over it
    own_build  whether it runs in an image that its program does not publish, or is a script that no table names: a fork
               may have options of its own
    unread     the config file that the command names besides its flags, and that is not here
    declared   options that the script's source in the repository declares
    loads      whether that source says how it loads its model
    ignores    whether the program passes over options that it does not know
    alone      whether the command starts a Python script as one process, whatever GPUs it sees
    """

    part: str
    format: str
    config: Document
    resources: Resources
    launcher: Document | None = None
    files: dict[str, Document] = {}  # noqa: RUF012  (never changed)
    problems: tuple[Problem, ...] = ()
    versions: dict[str, str] = {}  # noqa: RUF012  (never changed)
    implied: dict[str, Origin] = {}  # noqa: RUF012  (never changed)
    decided: dict[str, Decided] = {}  # noqa: RUF012  (never changed)
    file: Document | None = None
    program: str = ""
    own_build: bool = False
    ships: str = ""
    alone: bool = False
    unread: str = ""
    declared: frozenset[str] = frozenset()
    loads: bool = False
    ignores: bool = False


class Started(NamedTuple):
    """The jobs of a launcher file; `problems` are those that belong to no job, `reason` says why there is none.

    `files` are scripts that the launcher starts or reads, in which problems may stand. `bare` are starts of scripts
    that are of no known kind: they are no jobs, and only their launcher can be judged.
    """

    launches: list[Launch]
    problems: list[Problem]
    reason: str = ""
    files: dict[str, Document] = {}  # noqa: RUF012  (never changed)
    bare: list[Launch] = []  # noqa: RUF012  (never changed)

    def each(self, **changes: Any) -> Started:
        """The same with fields of every launch changed."""
        return self._replace(launches=[launch._replace(**changes) for launch in self.launches])


def combined(parts: Iterable[Started], nothing: str) -> Started:
    """The jobs of the parts of a file; the first part that says why it has none says why there is none at all."""
    launches: list[Launch] = []
    problems: list[Problem] = []
    bare: list[Launch] = []
    reason = ""
    for part in parts:
        bare += part.bare
        launches += part.launches
        problems += part.problems
        reason = reason or part.reason
    return Started(launches, problems, "" if launches else reason or nothing, bare=bare)


class Launcher(NamedTuple):
    """A kind of file that starts jobs. Its module holds one of these as `LAUNCHER`.

    recognise   whether a document is of this kind
    launches    what it starts; raises SourceError where the file contradicts its kind beyond use
    hardware    where its files say the GPUs, for the docs
    """

    name: str
    title: str
    upstream: str
    recognise: Callable[[Document], bool]
    launches: Callable[[Document, Project], Started]
    hardware: str = "not in the file"
