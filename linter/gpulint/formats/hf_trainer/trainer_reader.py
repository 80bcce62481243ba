"""A Reader of arguments that reach the Trainer, for what is written for a Run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..accelerate.launch import launch_of
from ..core.bindings.reader import Reader
from .training_arguments import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.arguments import Arguments
    from ..core.bindings.rows import Step


class TrainerReader(Reader):
    """A Reader of a config around the Trainer, and `run`, which says what `accelerate launch` makes of it.

    `defaults` are the program's, by the names of the Trainer's arguments.
    """

    __slots__ = ("run",)

    def starts(self, defaults: dict[str, Any], arguments: Arguments | None = None, *, launched: bool = True) -> None:
        """Note how the run is started, before rows are bound: `arguments` are the Trainer's, by default the keys."""
        launch = launch_of(self.reading, self.project) if launched else None
        self.defaults = defaults
        self.run = Run(
            self, self.keys if arguments is None else arguments, self.project, self.reading, defaults, launch
        )


def run_of(reader: Reader) -> Run:
    """The Run of a TrainerReader."""
    assert isinstance(reader, TrainerReader)
    return reader.run


def as_step(function: Callable[[Run], Any]) -> Step:
    """A function of a Run as a step of a table."""

    def step(reader: Reader) -> None:
        function(run_of(reader))

    return step
