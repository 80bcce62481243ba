"""What the parts of a DeepSpeed config are read with: the values for "auto", and the Job with its origins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.coercion import as_boolean
from ..core.format import Problem

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..core.format import JobBuilder

UPSTREAM = "DeepSpeed 0.19.8"
AUTO = "auto"


class AutoValues(NamedTuple):
    """What the tool that runs DeepSpeed puts in the place of "auto"; None for what is not known.

    client    `transformers` fills, and refuses literals that differ from its own arguments; `accelerate` fills, and
              follows the file; "" (nobody): "auto" means DeepSpeed's default in a ZeRO or precision section, and
              stops the run anywhere else
    """

    client: str = "transformers"
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    world_size: int | None = None
    bf16: bool | None = None
    fp16: bool | None = None
    hidden_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None


class Reference(NamedTuple):
    """The key of the checked file that stands for a DeepSpeed file which is not in the project."""

    entry: Entry
    key: str
    note: str


class Writer:
    """Sets Job fields from one DeepSpeed config: from its own keys, or from the key that names it.

    `root` is the config's mapping, `prefix` its dotted place in `document`.
    """

    __slots__ = ("builder", "document", "prefix", "problems", "reference", "root", "values")

    def __init__(
        self,
        builder: JobBuilder,
        document: Document,
        root: Node,
        values: AutoValues,
        prefix: str,
        reference: Reference | None,
    ) -> None:
        self.builder = builder
        self.document = document
        self.root = root
        self.values = values
        self.prefix = prefix
        self.reference = reference
        self.problems: list[Problem] = []

    @property
    def stage(self) -> int:
        """The ZeRO stage, once it has been set."""
        return self.builder.job.get("parallelism.zero.stage") or 0

    @property
    def path(self) -> str | None:
        """The file for problems: None when the config stands in the checked file."""
        return None if self.document.path == self.builder.document.path else self.document.path

    def dotted(self, key: str) -> str:
        """`key` of the config as a key of its file."""
        return f"{self.prefix}.{key}" if self.prefix else key

    def put(self, field: str, value: Any, entry: Entry | None, key: str, note: str = "") -> None:
        """Set a Job field from an entry; from the naming key without a file; derived when nothing is written."""
        if self.reference is not None:
            told = f"{key} of {self.reference.note}" + (f": {note}" if note else "")
            self.builder.from_entry(field, value, self.reference.entry, self.reference.key, told)
        elif entry is not None:
            self.builder.from_document(self.document, field, value, entry, self.dotted(key), note)
        else:
            self.builder.derived(field, value, note)

    def default(self, field: str, value: Any, note: str = "") -> None:
        """Set a Job field to DeepSpeed's default."""
        self.builder.default(field, value, note or f"default of {UPSTREAM}")

    def child(self, key: str) -> Node | None:
        """The mapping under a key, or None."""
        node = self.root.get(key)
        return node if node is not None and node.is_mapping else None

    def contradiction(self, key: str, entry: Entry, value: object, other: str, other_value: object) -> None:
        """Report a value that differs from another one it must agree with."""
        if self.reference is not None:
            entry, key = self.reference.entry, self.reference.key
        else:
            key = self.dotted(key)
        values = {"value": text(value), "other": f"{other}: {text(other_value)}", "upstream": UPSTREAM}
        self.problems.append(Problem("contradiction", key, entry.value.span, values, self.path))


def first(section: Node | None, spellings: tuple[str, ...]) -> tuple[Entry | None, str]:
    """The first of several spellings that a mapping has, and which one it is."""
    for key in spellings:
        entry = section.entry(key) if section is not None else None
        if entry is not None:
            return entry, key
    return None, spellings[0]


def scalar(entry: Entry | None) -> Any:
    """The value of an entry that holds a scalar; None for anything else."""
    return entry.value.value if entry is not None and entry.value.is_scalar else None


def is_on(section: Node | None, key: str) -> Entry | None:
    """The entry of a switch that is on; None when it is off, absent or no switch."""
    entry = section.entry(key) if section is not None else None
    return entry if entry is not None and as_boolean(scalar(entry)) else None


def text(value: object) -> str:
    """A value as JSON and YAML spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
