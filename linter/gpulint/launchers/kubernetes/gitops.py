"""Helm releases that a controller installs: Flux's HelmRelease, Argo CD's Application, the HelmChart of K3s.

Their values are read as the chart's values.yaml would be. Fields: Flux helm-controller v2 `spec.values`; Argo CD
`spec.source.helm.valuesObject`, which wins over `values`, a text, and the same below each of `spec.sources`; K3s
`spec.valuesContent`, a text. What ConfigMaps, Secrets and other files add stays unread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..embedded import embedded
from ..launch import Launcher, Started, combined
from ..values import listed, text, value_at
from . import custom_pods
from .manifests import launches, objects, readers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from .manifests import Manifests, Object

NAME = "gitops"

CHARTS = ("production_stack_values", "llm_d_values", "app_template")
"""Kinds of values files, in the order in which they are asked."""


def recognise(document: Document) -> bool:
    """A release whose values are those of a chart that is known, or hold a pod."""
    return any(
        custom_pods.holds_pod(item.root) or any(_chart(values) for values in _values(item, document))
        for item in objects(document)
        if readers(item) == NAME
    )


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of each set of values; those of an unknown chart are the pods that stand in them."""
    known = [(values, chart) for values in _values(item, manifests.file) if (chart := _chart(values))]
    if not known and custom_pods.holds_pod(item.root):
        return custom_pods.read(item, manifests)
    if not known:
        name = text(item.root, "spec.chart.spec.chart") or text(item.root, "spec.source.chart")
        return Started([], [], f"installs {name or 'a chart'}, whose values gpulint does not know")
    started = combined(
        (import_module(f".{chart}", __package__).launches(values, manifests.project) for values, chart in known),
        "starts no job",
    )
    named = [launch._replace(part=f"{item.part}, {launch.part}") for launch in started.launches]
    return started._replace(launches=named)


def _chart(values: Document) -> str:
    """The kind of values that a document holds; empty where none is known."""
    return next((name for name in CHARTS if import_module(f".{name}", __package__).recognise(values)), "")


def _values(item: Object, file: Document) -> Iterator[Document]:
    """The values of a release, each as a document of its own."""
    if item.kind in ("HelmRelease", "HelmChart"):
        key = "values" if item.kind == "HelmRelease" else "valuesContent"
        held = [value_at(item.root, f"spec.{key}")]
    else:
        sources = [value_at(item.root, "spec.source"), *listed(value_at(item.root, "spec.sources"))]
        held = [value_at(source, "helm.valuesObject") or value_at(source, "helm.values") for source in sources]
    for node in held:
        if node is not None:
            values = file._replace(roots=[node], reread=None) if node.is_mapping else embedded(file, node)
            if values is not None:
                yield values


LAUNCHER = Launcher(
    NAME, "Helm release (Flux, Argo CD, K3s)", "Flux v2, Argo CD v1alpha1, K3s helm.cattle.io/v1", recognise,
    launches, "from the chart's values",
)  # fmt: skip
