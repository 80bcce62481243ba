"""Two programs of one machine that listen on the same port at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .starts import number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from ...source.node import Span
    from .starts import Start

_MEET = 29500
"""torch 2.13 `distributed/run.py` `--master-port`; accelerate and DeepSpeed `constants.py` have the same."""

_SERVERS = {
    "vllm": 8000, "vllm.entrypoints.openai.api_server": 8000, "sglang": 30000, "sglang.launch_server": 30000,
}  # fmt: skip
"""vLLM 0.33 `entrypoints/openai/cli_args.py`, SGLang 0.5.23 `server_args.py`."""


class Taken(NamedTuple):
    """A port that a program in the background listens on; `stretch` is what runs in one go with it."""

    stretch: object
    port: int


def taken(start: Start) -> tuple[int, str, Span] | None:
    """The port that a program listens on, with the key and the place that says so; None where nobody knows."""
    if not start.wrappers.isdisjoint(("srun", "mpirun", "docker run", "docker", "podman")):
        return None
    for name, root in start.launcher("torchrun", "accelerate", "deepspeed"):
        others = ("rdzv_backend", "rdzv_endpoint", "standalone", "hostfile", "config_file")
        several = option(root, "nnodes", "num_machines", "num_nodes")
        if any(option(root, other) is not None for other in others) or number(several) not in (None, 1):
            return None
        entry = option(root, "master_port", "main_process_port")
        if entry is None and any("PORT" in variable for variable in start.environment):
            return None
        port = number(entry) if entry is not None else _MEET
        span = entry.value.span if entry is not None else start.at(start.program.name)
        key = (
            str(entry.key.value)
            if entry is not None
            else "main_process_port"
            if name == "accelerate"
            else "master_port"
        )
        return (port, key, span) if port and span is not None else None
    head = start.program.head
    if head not in _SERVERS or (head == "vllm" and [word.text for word in start.program.words[:1]] != ["serve"]):
        return None
    root = start.options
    entry = option(root, "port")
    if any(option(root, other) is not None for other in ("uds", "headless", "nnodes", "node-rank")):
        return None
    port = number(entry) if entry is not None else _SERVERS[head]
    span = entry.value.span if entry is not None else start.at(start.program.name)
    return (port, "port", span) if port and span is not None else None


def same_port(start: Start, stretch: object, before: list[Taken]) -> Iterator[Problem]:
    """The problem of a program whose port one that still runs has; `before` are those of the background."""
    own = taken(start)
    if own is None:
        return
    port, key, span = own
    if any(other.stretch is stretch and other.port == port for other in before):
        yield start.problem("same-port", key, span, value=str(port))
