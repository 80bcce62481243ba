"""What the Services of a file mean for the pods beside them: ports that they forward to, variables that they set.

A pod gets `NAME_PORT=tcp://ADDRESS:PORT` and its kin for every Service of its namespace with an address, unless its
spec says `enableServiceLinks: false`; variables of the container win (kubernetes 1.37 `pkg/kubelet/envvars`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from ...formats.core.format import Problem
from ...source.document import SourceError
from ..launch import Asked
from ..values import mappings, scalar, value_at
from .ports import numbered
from .probes import named_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Launch, Started

_READ = {
    "vllm": ("VLLM_PORT",),
    "sglang": ("SGLANG_PORT",),
    "tgi": ("MASTER_PORT",),
}
"""Format -> variables that its engine reads as a number of its own, and stops at a URL in them.

Sources: vLLM 0.33 `envs.py` get_vllm_port; SGLang 0.5.23 `srt/utils/network.py` get_open_port; `launcher/src/main.rs`
of text-generation-inference 3.3.7, whose options are read from variables of their names."""


class Manifest(Protocol):
    """One object of Kubernetes."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def root(self) -> Node: ...  # noqa: D102


def tell_services(
    item: Manifest, objects: Sequence[Manifest], started: Started, file: Document, project: Project
) -> Started:
    """The jobs of an object with the ports that Services ask of its pods, and the problems of their variables.

    A kustomization beside the file that gives names another beginning or end changes the variables, too.
    """
    services = [one for one in objects if one.kind == "Service" and not one.group and _near(one.root, item.root)]
    if not services or not started.launches:
        return started
    pods = list(_templates(item.root))
    for launch in started.launches:
        asked = [ask for service in services if (ask := _asked(service, pods, file)) is not None]
        launch.resources.asked_ports += asked
    kept = [] if _renamed(file, project) else services
    problems = [problem for service in kept for problem in _variables(service, item, started.launches)]
    return started._replace(problems=[*started.problems, *problems])


def _renamed(file: Document, project: Project) -> bool:
    try:
        found = project.open("kustomization.yaml", file.path) or project.open("kustomization.yml", file.path)
    except SourceError:
        return True
    return found is not None and any(found.root.get(key) is not None for key in ("namePrefix", "nameSuffix"))


def _near(service: Node, root: Node) -> bool:
    """Whether both are in one namespace, as far as anybody says."""
    one, other = scalar(service, "metadata.namespace"), scalar(root, "metadata.namespace")
    return not one or not other or one == other


def _templates(root: Node) -> Iterator[tuple[Node, Node]]:
    """The labels and the spec of every pod, and of every template of pods, of an object."""
    for part in _mappings(root):
        labels, spec = value_at(part, "metadata.labels"), part.get("spec")
        if labels is not None and labels.is_mapping and spec is not None and mappings(spec.get("containers")):
            yield labels, spec


MAX_DEPTH = 12


def _asked(service: Manifest, pods: list[tuple[Node, Node]], file: Document) -> Asked | None:
    """The ports that a Service forwards to; None where it selects other pods, or one of them is not the server's."""
    selector = value_at(service.root, "spec.selector")
    if selector is None or not selector.is_mapping or not selector.entries():
        return None
    wanted = {str(entry.key.value): entry.value.value for entry in selector.entries()}
    chosen = [spec for labels, spec in pods if all(scalar(labels, key) == str(value) for key, value in wanted.items())]
    containers = [container for spec in chosen for container in mappings(spec.get("containers"))]
    if not chosen or len(containers) != len(chosen):
        return None
    named = {name: number for container in containers for name, number in named_ports(container).items()}
    ports = mappings(value_at(service.root, "spec.ports"))
    targets = [port.get("targetPort") or port.get("port") for port in ports]
    numbers = [numbered(node.value, named) if node is not None else None for node in targets]
    if not numbers or targets[0] is None or None in numbers:
        return None
    key = "spec.ports.targetPort"
    found = tuple(number for number in numbers if number is not None)
    return Asked(found, f"Service {service.name}".strip(), key, file.path, targets[0].span)


def _variables(service: Manifest, item: Manifest, launches: Sequence[Launch]) -> Iterator[Problem]:
    """The variable of a Service that one of the engines reads, where no container sets it itself."""
    spec, name = service.root.get("spec"), service.root.find("metadata.name")
    if spec is None or name is None or scalar(spec, "clusterIP") == "None" or not mappings(spec.get("ports")):
        return
    set_ = re.sub("[^A-Z0-9]", "_", service.name.upper()) + "_PORT"
    engine = next((launch.format for launch in launches if set_ in _READ.get(launch.format, ())), "")
    if not engine or scalar(spec, "type") == "ExternalName":
        return
    parts = list(_mappings(item.root))
    unlinked = any((node := part.get("enableServiceLinks")) is not None and node.value is not True for part in parts)
    if not unlinked and not any(scalar(part, "name") == set_ for part in parts):
        yield Problem("service-variable", "metadata.name", name.value.span, {"value": set_, "reason": engine})


def _mappings(root: Node, depth: int = 0) -> Iterator[Node]:
    """Every mapping of an object."""
    if depth > MAX_DEPTH or root.is_scalar:
        return
    if root.is_mapping:
        yield root
    for child in [entry.value for entry in root.entries()] if root.is_mapping else root.items():
        yield from _mappings(child, depth + 1)
