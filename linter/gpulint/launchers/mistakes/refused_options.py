"""Options of launchers and of `docker run` that the tool itself refuses when it starts.

Sources: DeepSpeed 0.19 `launcher/runner.py` main; docker/cli `opts/gpus.go` and moby `daemon/devices_linux.go`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .own_address import listed_hosts
from .starts import number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from .starts import Start

_CONTAINERS = frozenset({"docker", "podman", "nvidia-docker"})
_HOST = re.compile(r"\S+\s+slots=\d+\s*(?:#.*)?")
_OF_DOCKER = re.compile(
    r"--(?:gpus|ipc|shm-size|shm_size|network|ulimit|runtime|restart|privileged|volume|env)(?:=.*)?"
)


def refused_options(start: Start) -> Iterator[Problem]:
    """What a launcher refuses."""
    for _, root in start.launcher("deepspeed"):
        chosen, counted = option(root, "include", "exclude"), option(root, "num_gpus", "num_nodes")
        if chosen is not None and counted is not None:
            why = f"DeepSpeed's launcher takes --{counted.key.value} or --{chosen.key.value}, not both"
            yield _refused(start, str(chosen.key.value), chosen.value.span, why, "the one that is meant")
        nodes = option(root, "num_nodes")
        if nodes is not None and (number(nodes) or 0) > 1 and option(root, "hostfile", "H", "no_ssh") is None:
            # not refused for certain: a cluster's machines may hold the default, /job/hostfile
            asked = str(nodes.value.value)
            yield start.problem("no-hostfile", "num_nodes", nodes.value.span, value=asked)
        odd = next((line for line in listed_hosts(start, root) if not _HOST.fullmatch(line)), None)
        given = option(root, "hostfile", "H")
        if odd is not None and given is not None:
            why = f"the line `{odd[:60]}` of the hostfile is not of the form `HOST slots=NUMBER`, and DeepSpeed stops"
            yield _refused(start, "hostfile", given.value.span, why, "`HOST slots=NUMBER`")
    for name, options in start.program.options:
        gpus = options.root.entry("gpus") if name in _CONTAINERS else None
        if gpus is not None and re.fullmatch(r"device=[^,\"']+,[^\"']+", str(gpus.value.value)):
            why = f"Docker reads `{gpus.value.value}` as two settings (cannot set both Count and DeviceIDs) and stops"
            yield _refused(start, "gpus", gpus.value.span, why, f"`--gpus '\"{gpus.value.value}\"'`, with both quotes")


def behind_image(start: Start) -> Iterator[Problem]:
    """Options of `docker run` behind the image, which the program in it is given."""
    if _CONTAINERS.isdisjoint(start.wrappers):
        return
    for word in start.program.words:
        if _OF_DOCKER.fullmatch(word.text) and (span := start.at(word)) is not None:
            name = word.text.partition("=")[0]
            yield start.problem("behind-image", name, span, value=start.program.image)


def _refused(start: Start, key: str, span: object, reason: str, suggestion: str) -> Problem:
    return start.problem("refused-launch", key, span, reason=reason, suggestion=suggestion)  # type: ignore[arg-type]
