"""All that is looked for in one start of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .missing_nodes import lone_machines, missing_nodes
from .no_address import no_address
from .own_address import own_address, same_rank
from .refused_options import behind_image, refused_options
from .task_devices import one_card_a_task
from .visible_devices import broken_devices
from .wrong_command import wrong_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from .starts import Start

_CHECKS = (
    own_address, no_address, same_rank, missing_nodes, lone_machines, broken_devices, one_card_a_task, refused_options,
    behind_image, wrong_command,
)  # fmt: skip


def mistakes(start: Start) -> Iterator[Problem]:
    """The problems of a start."""
    for check in _CHECKS:
        yield from check(start)
