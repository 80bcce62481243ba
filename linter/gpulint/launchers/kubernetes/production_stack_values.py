"""Helm values of vLLM production-stack (`servingEngineSpec.modelSpec`; chart of August 2026) and of its test suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.keys import load
from ..commands.flags import overlaid
from ..commands.images import elsewhere, versions
from ..launch import Launch, Launcher, Resources, Started
from ..quantities import size
from .manifest import dashed, flags_in, inside, renamed, text
from .pod import labels_of, read_labels

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
    models = root.find("servingEngineSpec.modelSpec")
    found: list[Launch] = []
    reasons: list[str] = []
    for model in models.value.items() if models is not None else ():
        if not model.is_mapping:
            continue
        reason = _why_not(model)
        if reason:
            reasons.append(reason)
        else:
            found.append(_launch(document, model))
    return Started(found, [], "" if found else reasons[0] if reasons else "sets no model (`modelSpec`)")


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
    entries: list[Entry] = []
    url = model.entry("modelURL")
    if url is not None:
        entries.append(renamed(document, "model", url))
    config = model.get("vllmConfig")
    known = load("vllm")["properties"]
    for entry in config.entries() if config is not None else ():
        option = dashed(str(entry.key.value))
        if option in known and entry.value.value is not None:
            entries.append(renamed(document, option, entry))
    flags = flags_in(document, config.get("extraArgs") if config is not None else None, "vllm")
    name = text(model, "name")
    part = f"model {name}" if name else "model"
    whole = overlaid(inside(document, entries, model), flags)
    return Launch(part, "vllm", whole, resources, versions=versions(_image(model)))


def _read_resources(document: Document, model: Node, resources: Resources) -> None:
    gpus = model.entry("requestGPU")
    if gpus is not None:
        number = as_integer(gpus.value.value)
        resources.state("gpus_per_node", number, document.path, "requestGPU", gpus.value.span)
    kind = model.entry("requestGPUType")
    if kind is not None and isinstance(kind.value.value, str) and "/mig-" in kind.value.value:
        name = kind.value.value.rpartition("/")[2]
        resources.state("gpu", name, document.path, "requestGPUType", kind.value.span)
    memory, shared = model.entry("limitMemory") or model.entry("requestMemory"), model.entry("shmSize")
    for name, found in (("host_memory", memory), ("shared_memory", shared)):
        if found is not None:
            number = size(found.value.value, binary=False)
            resources.state(name, number, document.path, str(found.key.value), found.value.span)
    read_labels(list(labels_of(model.get("nodeSelectorTerms"))), document, resources)
    head = model.find("raySpec.headNode.requestGPU")
    enabled = model.find("raySpec.enabled")
    if head is not None and (enabled is None or enabled.value.value is not False):
        replicas = model.get("replicaCount")
        workers = as_integer(replicas.value) if replicas is not None else 1
        resources.state("nodes", 1 + (workers or 1), document.path, "raySpec", head.value.span, "head and workers")


LAUNCHER = Launcher(
    NAME, "vLLM production-stack values", "vllm-project/production-stack 2026-08", recognise, launches,
    "`requestGPU`, `requestGPUType`, node labels of each model",
)  # fmt: skip
