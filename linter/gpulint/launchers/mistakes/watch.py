"""All that is looked for in the commands of one script, the one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checks import mistakes
from .image_build import Build, install_problems
from .same_port import Taken, same_port, taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from ...source.document import Document
    from ..commands.wrappers import Unwrapped
    from ..shell.shell import Command
    from .starts import Start

JOINS = frozenset({"ray", "mace_run_train"})
"""Programs that nothing is known of but where their ranks meet, or which device they take."""


class Watch:
    """What the commands so far have taken: ports of programs in the background, and what a container has installed."""

    def __init__(self) -> None:
        self._ports: list[Taken] = []
        self._build = Build("")

    def start(self, start: Start, command: Command) -> Iterator[Problem]:
        """What makes the start of a program fail."""
        yield from mistakes(start)
        if command.stretch is None:
            return
        yield from same_port(start, command.stretch, self._ports)
        port = taken(start) if command.background else None
        self._ports += [Taken(command.stretch, port[0])] if port is not None else []

    def install(self, program: Unwrapped, inner: Command, image: str, file: Document) -> Iterator[Problem]:
        """What makes an installation fail in the container that it is done in."""
        if not image or program.head not in ("pip", "pip3", "uv"):
            return
        if self._build.image != image:
            self._build = Build(image)
        texts = {name: word.text for name, word in inner.environment.items()}
        self._build.set({name: text for name, text in texts.items() if name in ("CUDA_HOME", "CUDA_PATH")})
        yield from install_problems((program.name, *program.words), self._build, file, texts)
