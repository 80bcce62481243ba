"""Helm releases that a controller installs: Flux's HelmRelease, Argo CD's Application, the HelmChart of K3s.

Their values are read as the chart's values.yaml would be. Fields: Flux helm-controller v2 `spec.values`; Argo CD
`spec.source.helm.valuesObject`, which wins over `values`, a text, and the same below each of `spec.sources`; K3s
`spec.valuesContent`, a text. What ConfigMaps, Secrets and other files add stays unread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..embedded import embedded
from ..launch import Launcher, Started
from . import custom_pods
from .manifest import text
from .manifests import launches, objects, readers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ...source.node import Node
    from .manifests import Manifests, Object

NAME = "gitops"

CHARTS = ("production_stack_values", "llm_d_values", "app_template")
"""Kinds of values files, in the order in which they are asked."""


def recognise(document: Document) -> bool:
    """A release whose values are those of a chart that is known, or hold a pod."""
    for item in objects(document):
        if readers(item) == NAME:
            if custom_pods.holds_pod(item.root):
                return True
            if any(_chart(values) for values in _values(item, document)):
                return True
    return False


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of each set of values; those of an unknown chart are the pods that stand in them."""
    found, problems, reasons = [], [], []
    for values in _values(item, manifests.file):
        chart = _chart(values)
        if not chart:
            continue
        started: Started = import_module(f".{chart}", __package__).launches(values, manifests.project)
        found += [launch._replace(part=f"{item.part}, {launch.part}") for launch in started.launches]
        problems += started.problems
        reasons.append(started.reason)
    if not reasons and custom_pods.holds_pod(item.root):
        return custom_pods.read(item, manifests)
    if not reasons:
        name = text(item.root, "spec.chart.spec.chart") or text(item.root, "spec.source.chart")
        reasons.append(f"installs {name or 'a chart'}, whose values gpulint does not know")
    return Started(found, problems, "" if found else next(filter(None, reasons), "starts no job"))


def _chart(values: Document) -> str:
    """The kind of values that a document holds; empty where none is known."""
    return next((name for name in CHARTS if import_module(f".{name}", __package__).recognise(values)), "")


def _values(item: Object, file: Document) -> Iterator[Document]:
    """The values of a release, each as a document of its own."""
    spec = item.root.get("spec")
    if spec is None or not spec.is_mapping:
        return
    if item.kind == "HelmRelease":
        yield from _read(spec.get("values"), file)
    elif item.kind == "HelmChart":
        yield from _read(spec.get("valuesContent"), file)
    else:
        sources = [spec.get("source"), *(several.items() if (several := spec.get("sources")) is not None else ())]
        for source in sources:
            helm = source.get("helm") if source is not None and source.is_mapping else None
            if helm is not None and helm.is_mapping:
                whole = helm.get("valuesObject")
                yield from _read(helm.get("values") if whole is None else whole, file)


def _read(node: Node | None, file: Document) -> Iterator[Document]:
    if node is None:
        return
    held = file._replace(roots=[node], reread=None) if node.is_mapping else embedded(file, node)
    if held is not None:
        yield held


LAUNCHER = Launcher(
    NAME, "Helm release (Flux, Argo CD, K3s)", "Flux v2, Argo CD v1alpha1, K3s helm.cattle.io/v1", recognise,
    launches, "from the chart's values",
)  # fmt: skip
