"""What a DeepSpeed config is read with: the values for "auto", and a Reader that knows where the config stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.backends.deepspeed import AUTO, UPSTREAM
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Written
from ..core.format import Problem
from ..core.sections import Sections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..core.arguments import Given
    from ..core.bindings.rows import Source
    from ..core.format import JobBuilder


class Argument(NamedTuple):
    """An argument of the Trainer: its value, and how sure that is.

    basis  `stated`; `default` of a program whose defaults are known; `assumed`, the Trainer's default for a script that
           nobody knows, which may have another
    """

    value: Any
    basis: str


class AutoValues(NamedTuple):
    """What the tool that runs DeepSpeed puts in the place of "auto"; None for what is not known.

    client    `transformers` fills, and refuses literals that differ from its own arguments; `accelerate` fills, and
              follows the file; "" (nobody): "auto" means DeepSpeed's default in a ZeRO or precision section, and
              stops the run anywhere else
    arguments the Trainer's arguments that it compares, those that are known
    """

    client: str = "transformers"
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    world_size: int | None = None
    bf16: bool | None = None
    fp16: bool | None = None
    hidden_size: int | None = None
    arguments: Mapping[str, Argument] = {}

    def filled(self, field: str, stage: int) -> int | None:
        """What Transformers and accelerate put for "auto" in a field of ZeRO: h^2, and for stage 3 0.9 h^2 and 10 h.

        Sources: `trainer_config_finalize` of Transformers 5.23.0, `_prepare_deepspeed` of accelerate 1.15.0.
        """
        hidden = self.hidden_size if self.client else None
        if not hidden:
            return None
        sizes = {"reduce_bucket_size": hidden * hidden}
        if stage == 3:
            sizes |= {"prefetch_bucket_size": int(0.9 * hidden * hidden), "param_persistence_threshold": 10 * hidden}
        return sizes.get(field)


class Reference(NamedTuple):
    """The key of the checked file that stands for a DeepSpeed file which is not in the project."""

    entry: Entry
    key: str
    note: str


class ConfigReader(Reader):
    """Reads a DeepSpeed config over what the tool that runs DeepSpeed has set.

    `reference` is given for a file that is not in the project: then every origin is the key that names it.
    """

    __slots__ = ("elsewhere", "reference", "values")

    values: AutoValues
    reference: Reference | None
    elsewhere: str | None

    @classmethod
    def of(
        cls, builder: JobBuilder, document: Document, root: Node, prefix: str, values: AutoValues,
        reference: Reference | None,
    ) -> ConfigReader:  # fmt: skip
        """`root` is the config's mapping, `prefix` its dotted place in `document`."""
        reader = cls.over(builder, builder.document if reference else document, Sections(root, prefix), UPSTREAM)
        reader.values, reader.reference = values, reference
        reader.blank = lambda _, field, given, default: reader.filled(field, given, default)
        reader.elsewhere = None if document.path == builder.document.path else document.path
        return reader

    @property
    def stage(self) -> int:
        """The ZeRO stage, once it has been set."""
        return self.job.get("parallelism.zero.stage") or 0

    def from_entry(self, path: str, value: Any, entry: Entry, key: str, note: str = "") -> None:
        """Set a field from a key of the config, or from the one that names it."""
        if self.reference is not None:
            note = f"{key} of {self.reference.note}" + (f": {note}" if note else "")
            entry, key = self.reference.entry, self.reference.key
        super().from_entry(path, value, entry, key, note)

    def say(self, field: str, value: Any, given: Given | None, key: str, note: str = "") -> None:
        """Set a field from a key; derived where nothing is written."""
        if given is None and self.reference is not None:
            self.from_entry(field, value, self.reference.entry, key, note)
        elif given is None:
            self.derived(field, value, note)
        else:
            self.set(field, given, value, note)

    def filled(self, field: str, given: Given, default: Source) -> Source:
        """What stands for a value that is filled in: the client's for "auto" where it is known, else the default."""
        auto, values = given.value == AUTO, self.values
        size = values.filled(field.rpartition(".")[2], self.stage) if auto else None
        if size is not None:
            return Written(size, f'"auto", filled from hidden_size {values.hidden_size}')
        why = '"auto" is not filled here' if auto else f"{given.entry.key.value} is {given.value}"
        return default._replace(note=f"{why}; default of {UPSTREAM}")

    def differs(self, given: Given, value: object, other: str, other_value: object) -> None:
        """Report a value that differs from another one it must agree with."""
        self.contradicts(given, text(value), f"{other}: {text(other_value)}")

    def contradicts(self, given: Given, value: str, other: str, message: str = "", basis: str = "") -> None:
        """Report a value, as written, that stands against `other`; `basis` says how sure that one is."""
        entry, key = (self.reference.entry, self.reference.key) if self.reference else (given.entry, given.key)
        values = {"value": value, "other": other, "message": message, "basis": basis, "upstream": UPSTREAM}
        self.reading.problems.append(Problem("contradiction", key, entry.value.span, values, self.elsewhere))


def text(value: object) -> str:
    """A value as JSON and YAML spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
