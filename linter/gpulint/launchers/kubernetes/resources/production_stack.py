"""vLLM Production Stack: a `VLLMRuntime` is a vLLM server.

Facts from the operator at a6c01db (`internal/controller/vllmruntime_controller.go`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...commands.images import versions
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...quantities import size
from ..command import Assembly
from ..manifests import launches, recogniser
from ..pod import listed

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "production_stack"
UPSTREAM = "vLLM Production Stack operator"

_VALUES = (
    ("model", "maxModelLen", "max-model-len"),
    ("model", "dtype", "dtype"),
    ("vllmConfig", "tensorParallelSize", "tensor-parallel-size"),
    ("model", "maxNumSeqs", "max-num-seqs"),
    ("vllmConfig", "gpuMemoryUtilization", "gpu-memory-utilization"),
    ("vllmConfig", "maxLoras", "max-loras"),
)
"""Section, key and the flag of vLLM that it becomes, in the operator's order."""

_SWITCHES = (
    ("enableChunkedPrefill", "enable-chunked-prefill"),
    ("enablePrefixCaching", "enable-prefix-caching"),
)
"""Keys of `vllmConfig` that are always passed: as `--no-...` where they are false or missing."""


def read(item: Object, manifests: Manifests) -> Started:
    """The server of a runtime."""
    file = manifests.file
    spec = item.root.get("spec")
    model = _at(spec, "model.modelURL")
    if spec is None or model is None or not isinstance(model.value, str):
        return Started([], [], "a runtime without a model")
    line = Assembly(file, model, "vllm serve")
    line.words([model])
    if _true(_at(spec, "model.enableLoRA")):
        line.switch("enable-lora")
    for key, flag in _SWITCHES:
        given = _at(spec, f"vllmConfig.{key}")
        if _true(given):
            line.switch(flag)
        else:
            line.add(flag, "false", f"off unless {key} is set: {UPSTREAM}", "file" if given is not None else "default")
    for section, key, flag in _VALUES:
        line.say(flag, _at(spec, f"{section}.{key}"))
    line.words(listed(_at(spec, "vllmConfig.extraArgs")))
    resources = Resources()
    _read_resources(spec, file.path, resources)
    image = _at(spec, "deploymentConfig.image.name")
    name = str(image.value) if image is not None else ""
    started = jobs_of_commands([line.command()], file, manifests.project, resources, item.part, versions(name))
    return started._replace(launches=[launch._replace(implied=line.implied) for launch in started.launches])


def _read_resources(spec: Node, path: str, resources: Resources) -> None:
    for name, key in (("gpus_per_node", "resources.gpu"), ("host_memory", "resources.memory"),
                      ("shared_memory", "shmSize")):  # fmt: skip
        entry = spec.find(f"deploymentConfig.{key}")
        if entry is None:
            continue
        number = as_integer(entry.value.value) if name == "gpus_per_node" else size(entry.value.value, binary=False)
        resources.state(name, number or None, path, f"deploymentConfig.{key}", entry.value.span)


def _at(spec: Node | None, path: str) -> Node | None:
    entry = spec.find(path) if spec is not None else None
    return entry.value if entry is not None else None


def _true(node: Node | None) -> bool:
    return node is not None and node.value is True


LAUNCHER = Launcher(
    NAME, "vLLM Production Stack runtime", UPSTREAM, recogniser(NAME), launches, "`deploymentConfig.resources.gpu`"
)
