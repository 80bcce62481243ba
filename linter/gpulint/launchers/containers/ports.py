"""The port on which a server listens, and those on which somebody expects it: probes, Services, published ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.format import Problem
from ...formats.core.placeholders import is_blank
from ...repository.images import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...formats.core.format import Reading
    from ..launch import Launch


_OPTIONS = {"lmdeploy": "server-port", "huggingfaceserver": "http_port"}
"""The option for the port, where it is not `port`."""

_DEFAULTS = {
    "vllm": 8000, "sglang": 30000, "trtllm": 8000, "lmdeploy": 23333, "llama_cpp": 8080, "huggingfaceserver": 8080,
}  # fmt: skip
"""vLLM 0.33 `entrypoints/openai/cli_args.py`, SGLang 0.5.23 `server_args.py`, TensorRT-LLM 1.3 `commands/serve.py`,
LMDeploy 0.15 `cli/serve.py`, llama.cpp b9000 `common/common.h`, KServe 0.20 `model_server.py`."""

_TGI, _TGI_IMAGE = "huggingface/text-generation-inference", 80
"""The image of text-generation-inference, and PORT in it (Dockerfile of 3.3.7); the images of clouds have others."""

_ELSEWHERE = ("uds", "headless", "grpc", "grpc-mode", "nnodes", "node-rank")
"""Options with which a server listens on no port, or not in each container."""


def listens_on(launch: Launch, reading: Reading) -> int | None:
    """The port that the server of a launch listens on; None for what is no server, and where nobody knows."""
    program = "huggingfaceserver" if launch.program.endswith("huggingfaceserver") else launch.format
    if reading.job.kind != "inference" or (program not in _DEFAULTS and program != "tgi"):
        return None
    root, option = launch.config.root, _OPTIONS.get(program, "port")
    if any(root.entry(name) is not None for name in _ELSEWHERE):
        return None
    entry = root.entry(option) or root.entry(option.replace("-", "_")) or root.entry(option.replace("_", "-"))
    if entry is not None:
        return None if is_blank(entry.value.value) else as_integer(entry.value.value)
    if launch.unread or (launch.own_build and "container.command" not in launch.resources.told):
        return None
    image = name_of(str(launch.resources.told.get("container.image", ("",))[0]))
    return _DEFAULTS.get(program) or (_TGI_IMAGE if image.endswith(_TGI) else None)


def port_problems(launch: Launch, reading: Reading) -> Iterator[Problem]:
    """The parties that expect the server on other ports than its own."""
    asked = launch.resources.asked_ports
    port = listens_on(launch, reading) if asked else None
    if port is None or launch.resources.told.get("commands", (1,))[0] != 1:
        return
    for one in asked:
        if one.ports and port not in one.ports:
            kind = "probe-port" if one.probe and one.surely else "service-port"
            values = {"value": ", ".join(map(str, one.ports)), "expected": str(port), "reason": one.who}
            yield Problem(kind, one.key, one.span, values, one.path)


def forwarded(text: str) -> int | None:
    """The container's port of `8000`, `8080:8000`, `127.0.0.1:8080:8000/tcp`; None for a range or a variable."""
    return as_integer(text.rpartition(":")[2].partition("/")[0])


def numbered(port: object, named: Mapping[str, int]) -> int | None:
    """The number of a port that is a number, or the name of one of the container's."""
    return as_integer(port) or (named.get(port) if isinstance(port, str) else None)
