"""Helm values of vLLM production-stack (`servingEngineSpec.modelSpec`; chart of August 2026) and of its test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.format import Problem
from ...formats.core.keys import load
from ...job.origin import Origin
from ...repository.images import versions
from ...units import GIB
from ..commands.flags import inside, overlaid
from ..commands.images import elsewhere
from ..containers.docker import CONTAINER_SHARED_MEMORY
from ..launch import Launch, Launcher, Resources, Started
from ..quantities import quantity
from ..values import mappings, scalar, text, value_at
from .container import flags_in
from .manifest import dashed, renamed
from .pod import labels_of, read_labels
from .pod_settings import SHARED

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Entry, Node

NAME = "production_stack_values"


def recognise(document: Document) -> bool:
    """`servingEngineSpec` with a `modelSpec`, the chart's other sections alone, or a helm-unittest suite."""
    keys = set(document.root.keys())
    if document.root.find("servingEngineSpec") is not None or {"suite", "tests"} <= keys:
        return True
    return bool(keys & {"routerSpec", "cacheserverSpec"})


def launches(document: Document, project: Project) -> Started:  # noqa: ARG001
    """A vLLM server for each enabled model; replicas each serve on their own."""
    root = document.root
    if root.get("suite") is not None:
        return Started([], [], "a helm-unittest suite: tests templates, starts no job")
    models = mappings(value_at(root, "servingEngineSpec.modelSpec"))
    found = [_launch(document, model) for model in models if not _why_not(model)]
    problems = [problem for model in models if not _why_not(model) for problem in _idle(model)]
    return Started(found, problems, "" if found else _why_not(models[0]) if models else "sets no model (`modelSpec`)")


def _why_not(model: Node) -> str:
    enabled, gpus = model.get("enabled"), model.get("requestGPU")
    name = text(model, "name") or "its model"
    if enabled is not None and enabled.value is False:
        return f"{name} is not enabled"
    if gpus is not None and as_integer(gpus.value) == 0:
        return f"{name} requests no GPU"
    device = elsewhere(_image(model)) or ("CPUs" if text(model, "device") == "cpu" else "")
    return f"{name} runs on {device}, which gpulint does not estimate" if device else ""


def _image(model: Node) -> str:
    return f"{text(model, 'repository')}:{text(model, 'tag')}"


def _launch(document: Document, model: Node) -> Launch:
    resources = Resources()
    _read_resources(document, model, resources)
    url = model.entry("modelURL")
    entries = [renamed(document, "model", url)] if url is not None else []
    config = model.get("vllmConfig")
    known = load("vllm")["properties"]
    for entry in config.entries() if config is not None else ():
        option = dashed(str(entry.key.value))
        if _renders(model, str(entry.key.value)) and option in known and entry.value.value is not None:
            entries.append(renamed(document, option, entry))
    flags = flags_in(document, value_at(config, "extraArgs"), "vllm")
    name = text(model, "name")
    part = f"model {name}" if name else "model"
    whole = overlaid(inside(document, entries, model), flags)
    return Launch(part, "vllm", whole, resources, versions=versions(_image(model)))


def _read_resources(document: Document, model: Node, resources: Resources) -> None:
    path = document.path
    resources.read("gpus_per_node", model.entry("requestGPU"), path)
    resources.read("gpu", model.entry("requestGPUType"), path, parse=_partition)
    resources.read("host_memory", model.entry("limitMemory"), path, parse=quantity)
    _shared_memory(model, path, resources)
    read_labels(list(labels_of(model.get("nodeSelectorTerms"))), document, resources)
    head = model.find("raySpec.headNode.requestGPU")
    enabled = model.find("raySpec.enabled")
    if head is not None and (enabled is None or enabled.value.value is not False):
        replicas = model.get("replicaCount")
        workers = as_integer(replicas.value) if replicas is not None else 1
        resources.state("nodes", 1 + (workers or 1), path, "raySpec", head.value.span, "head and workers")


def _shared_memory(model: Node, path: str, resources: Resources) -> None:
    """The chart mounts /dev/shm, of `shmSize` or 20 GiB, only where `vllmConfig` has a `tensorParallelSize`, whatever
    the flags of `extraArgs` say (helm/templates/deployment-vllm-multi.yaml)."""
    if value_at(model, "vllmConfig.tensorParallelSize") is not None:
        resources.shared_memory = 20 * GIB
        resources.origins["shared_memory"] = Origin("default", "20Gi, the default of the chart")
        resources.read("shared_memory", model.entry("shmSize"), path, parse=quantity)
        return
    own = any(SHARED in scalar(mount, "mountPath") for mount in mappings(model.get("extraVolumeMounts")))
    if not own and value_at(model, "lmcacheConfig.enablePD") is None:
        resources.shared_memory = CONTAINER_SHARED_MEMORY
        note = "64 MiB, as the chart mounts /dev/shm only with vllmConfig.tensorParallelSize"
        resources.origins["shared_memory"] = Origin("default", note)


def _idle(model: Node) -> list[Problem]:
    """Values of a model that the chart's templates pass over."""
    found: list[Problem] = []

    def say(entry: Entry | None, key: str, reason: str) -> None:
        if entry is not None:
            found.append(Problem("renders-nothing", key, entry.key.span, {"reason": reason}))

    config = model.get("vllmConfig")
    if value_at(config, "tensorParallelSize") is None:
        reason = "the chart mounts /dev/shm only where vllmConfig.tensorParallelSize is set"
        say(model.entry("shmSize"), "shmSize", reason)
    for entry in config.entries() if config is not None and config.is_mapping else ():
        key = str(entry.key.value)
        if not _renders(model, key) and dashed(key) in load("vllm")["properties"]:
            say(entry, f"vllmConfig.{key}", f"the chart passes on only {', '.join(_RENDERED)}; say it in extraArgs")
    return found


def _renders(model: Node, key: str) -> bool:
    """Whether a key of `vllmConfig` becomes a flag; one more of a Ray cluster (ray-cluster.yaml)."""
    return key in _RENDERED or (key == "pipelineParallelSize" and model.get("raySpec") is not None)


_RENDERED = (
    "enableChunkedPrefill", "enablePrefixCaching", "maxModelLen", "dtype", "tensorParallelSize", "maxNumSeqs",
    "gpuMemoryUtilization", "maxLoras", "runner", "convert", "extraArgs",
)  # fmt: skip
"""Keys of `vllmConfig` that become flags (helm/templates/deployment-vllm-multi.yaml at a6c01db)."""


def _partition(kind: object) -> str | None:
    """`mig-3g.40gb` of `nvidia.com/mig-3g.40gb`; a resource without a partition names no GPU."""
    return kind.rpartition("/")[2] if isinstance(kind, str) and "/mig-" in kind else None


LAUNCHER = Launcher(
    NAME, "vLLM production-stack values", "vllm-project/production-stack 2026-08", recognise, launches,
    "`requestGPU`, `requestGPUType`, node labels of each model",
)  # fmt: skip
