"""A Reader of a config of another tool, and of the arguments that it hands to the Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..accelerate.launch import launch_of
from ..core.bindings.reader import Reader

if TYPE_CHECKING:
    from ..core.arguments import Arguments
    from ..core.bindings.rows import Row, Step


class TrainerReader(Reader):
    """A Reader of a config around the Trainer, and `run`, which reads it under the names of the Trainer's arguments.

    `defaults` are the program's, by those names; `launch` among them is the `accelerate launch` that starts the run.
    """

    __slots__ = ("run",)

    run: Reader

    def starts(self, defaults: dict[str, Any], arguments: Arguments | None = None, *, launched: bool = True) -> None:
        """Note how the run is started, before rows are bound: `arguments` are the Trainer's, by default the keys."""
        launch = launch_of(self.reading, self.project) if launched else None
        self.defaults = {**defaults, "launch": launch}
        self.run = self if arguments is None else self.beside(self.document, arguments, self.upstream)


def run_of(reader: Reader) -> Reader:
    """What reads the Trainer's arguments: the Reader itself, but for one that has them elsewhere."""
    return reader.run if isinstance(reader, TrainerReader) else reader


def trainer_rows(*rows: Row) -> Step:
    """Rows of the Trainer's arguments as a step of another tool's table."""
    return lambda reader: run_of(reader).bind(rows)
