"""Helm values of vLLM production-stack (`servingEngineSpec.modelSpec`; chart of August 2026) and of its test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.keys import load
from ...repository.images import versions
from ..commands.flags import inside, overlaid
from ..commands.images import elsewhere
from ..launch import Launch, Launcher, Resources, Started
from ..quantities import quantity
from ..values import mappings, text, value_at
from .manifest import dashed, flags_in, renamed
from .pod import labels_of, read_labels

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node

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
    return Started(found, [], "" if found else _why_not(models[0]) if models else "sets no model (`modelSpec`)")


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
        if option in known and entry.value.value is not None:
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
    resources.read("host_memory", model.entry("limitMemory") or model.entry("requestMemory"), path, parse=quantity)
    resources.read("shared_memory", model.entry("shmSize"), path, parse=quantity)
    read_labels(list(labels_of(model.get("nodeSelectorTerms"))), document, resources)
    head = model.find("raySpec.headNode.requestGPU")
    enabled = model.find("raySpec.enabled")
    if head is not None and (enabled is None or enabled.value.value is not False):
        replicas = model.get("replicaCount")
        workers = as_integer(replicas.value) if replicas is not None else 1
        resources.state("nodes", 1 + (workers or 1), path, "raySpec", head.value.span, "head and workers")


def _partition(kind: object) -> str | None:
    """`mig-3g.40gb` of `nvidia.com/mig-3g.40gb`; a resource without a partition names no GPU."""
    return kind.rpartition("/")[2] if isinstance(kind, str) and "/mig-" in kind else None


LAUNCHER = Launcher(
    NAME, "vLLM production-stack values", "vllm-project/production-stack 2026-08", recognise, launches,
    "`requestGPU`, `requestGPUType`, node labels of each model",
)  # fmt: skip
