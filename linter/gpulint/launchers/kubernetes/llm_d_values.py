"""Helm values of llm-d's modelservice chart: `modelArtifacts`, `decode`, `prefill` (llm-d-modelservice 0.4.12).

Source: `charts/llm-d-modelservice/templates/_helpers.tpl`: the command of a container by its `modelCommand`, GPUs as
tensor x local data parallel size where no limit says another number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...repository.images import versions
from ...source.node import Entry
from ..commands.images import elsewhere, not_estimated
from ..launch import Launcher, Resources, Started, combined
from ..values import listed, mapping_at, mappings, scalar, text, value_at
from .command import Assembly
from .container import foreign, jobs_of_container
from .manifest import scalar_at
from .pod import container_of, read_asked, read_labels

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node

NAME = "llm_d_values"
ROLES = ("decode", "prefill")
_DEVICES = {
    "cpu": "CPUs", "google": "TPUs", "intel": "Intel GPUs", "intel-gaudi": "Intel Gaudi", "intel-i915": "Intel GPUs",
    "intel-xe": "Intel GPUs", "rebellions-atom": "Rebellions ATOM",
}  # fmt: skip
"""`accelerator.type` -> the device, where that is no GPU of the catalogue."""

_DEGREES = (("tensor", "tensor-parallel-size"), ("data", "data-parallel-size"),
            ("dataLocal", "data-parallel-size-local"))  # fmt: skip


def recognise(document: Document) -> bool:
    """`modelArtifacts` beside a role."""
    keys = set(document.root.keys())
    return "modelArtifacts" in keys and not keys.isdisjoint(ROLES)


def launches(document: Document, project: Project) -> Started:
    """The servers of each role that is created; their replicas each serve on their own."""
    root = document.root
    servers = (
        _server(root, section, container, role, document, project)
        for role in ROLES
        if (section := mapping_at(root, role)) is not None
        and getattr(section.get("create"), "value", True) is not False
        for container in mappings(section.get("containers"))
    )
    return combined(servers, "starts no container")


def _server(root: Node, section: Node, container: Node, role: str, document: Document, project: Project) -> Started:
    kind = text(section, "accelerator.type") or text(root, "accelerator.type") or "nvidia"
    device = _DEVICES.get(kind) or elsewhere(text(container, "image"))
    if device:
        return Started([], [], not_estimated(device))
    parallelism = section.get("parallelism")
    resources = Resources()
    read_asked(container.get("resources"), document, resources)
    _read_gpus(section, parallelism, document, resources)
    described = container_of(container, document)
    if text(container, "modelCommand") not in ("vllmServe", "imageDefault"):
        return jobs_of_container(described, document, project, resources, role)
    model = _model(root, document)
    if model is None:
        return Started([], [], "sets no model")
    line = Assembly(document, container, "vllm serve", described.environment)
    line.say("model", model[0], model[1])
    for key, flag in _DEGREES:
        line.say(flag, value_at(parallelism, key))
    line.words(listed(container.get("args")))
    return foreign(line.jobs(project, resources, role, versions(described.image)), described.image)


def _model(root: Node, document: Document) -> tuple[Node, int] | None:
    """The node that names the model and where in its text: a hub id in `uri`, which may be the `name`, or a path."""
    uri, name = value_at(root, "modelArtifacts.uri"), value_at(root, "modelArtifacts.name")
    scheme, _, rest = scalar(root, "modelArtifacts.uri").partition("://")
    if "{{" in rest or (scheme == "pvc+hf" and name is not None):
        return (name, 0) if name is not None else None
    if uri is None or not rest:
        return None
    if scheme == "pvc":
        mounted = text(root, "modelArtifacts.mountPath") or "/model-cache"
        return scalar_at(document, f"{mounted}/{rest.partition('/')[2]}", uri), 0
    return (uri, len(scheme) + 3) if scheme == "hf" else None


def _read_gpus(section: Node, parallelism: Node | None, document: Document, resources: Resources) -> None:
    """GPUs as the parallel sizes need them, where no limit says; their kind from `acceleratorTypes`."""
    sizes = [value_at(parallelism, key) for key in ("tensor", "dataLocal")]
    each = [as_integer(node.value) if node is not None else 1 for node in sizes]
    stated = next((node for node in sizes if node is not None), None)
    if resources.gpus_per_node is None and stated is not None and None not in each:
        number = (each[0] or 1) * (each[1] or 1)
        resources.state("gpus_per_node", number, document.path, "parallelism", stated.span, "tensor x dataLocal")
    key, values = value_at(section, "acceleratorTypes.labelKey"), value_at(section, "acceleratorTypes.labelValues")
    if key is not None and values is not None and len(values.items()) == 1:
        read_labels([Entry(key, values.items()[0])], document, resources)


LAUNCHER = Launcher(
    NAME, "llm-d modelservice values", "llm-d-modelservice 0.4.12", recognise, launches,
    "limits of `nvidia.com/gpu`, tensor x local data parallel size, `acceleratorTypes`",
)  # fmt: skip
