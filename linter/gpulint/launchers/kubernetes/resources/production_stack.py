"""vLLM Production Stack: a `VLLMRuntime` is a vLLM server.

Facts from the operator at a6c01db (`internal/controller/vllmruntime_controller.go`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....repository.images import versions
from ...launch import Launcher, Resources, Started
from ...quantities import quantity
from ...values import count, listed, scalar, value_at
from ..command import Assembly
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from collections.abc import Callable

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


_RESOURCES: tuple[tuple[str, str, Callable[[object], int | None]], ...] = (
    ("gpus_per_node", "deploymentConfig.resources.gpu", count),
    ("host_memory", "deploymentConfig.resources.memory", quantity),
    ("shared_memory", "deploymentConfig.shmSize", quantity),
)


def read(item: Object, manifests: Manifests) -> Started:
    """The server of a runtime."""
    file = manifests.file
    spec = item.root.get("spec")
    model = value_at(spec, "model.modelURL")
    if spec is None or model is None or not isinstance(model.value, str):
        return Started([], [], "a runtime without a model")
    line = Assembly(file, model, "vllm serve")
    line.words([model])
    if _true(value_at(spec, "model.enableLoRA")):
        line.switch("enable-lora")
    for key, flag in _SWITCHES:
        given = value_at(spec, f"vllmConfig.{key}")
        if _true(given):
            line.switch(flag)
        else:
            line.add(flag, "false", f"off unless {key} is set: {UPSTREAM}", "file" if given is not None else "default")
    for section, key, flag in _VALUES:
        line.say(flag, value_at(spec, f"{section}.{key}"))
    line.words(listed(value_at(spec, "vllmConfig.extraArgs")))
    resources = Resources()
    for name, key, parse in _RESOURCES:
        resources.read(name, spec.find(key), file.path, key, parse)
    return line.jobs(manifests.project, resources, item.part, versions(scalar(spec, "deploymentConfig.image.name")))


def _true(node: Node | None) -> bool:
    return node is not None and node.value is True


LAUNCHER = Launcher(
    NAME, "vLLM Production Stack runtime", UPSTREAM, recogniser(NAME), launches, "`deploymentConfig.resources.gpu`"
)
