"""Probes of a container: which port they ask, and how long after its start one of them kills it.

Facts of the kubelet (kubernetes 1.37 `pkg/kubelet/prober/worker.go`, `pkg/apis/core/v1/defaults.go`): nothing is probed
before `initialDelaySeconds`, then once in `periodSeconds` (10); `failureThreshold` (3) failures in a row kill the
container; while a startup probe has not succeeded, no other probe runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ..launch import Asked
from ..values import mappings, scalar, value_at
from .ports import numbered

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Resources

_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_PERIOD, _FAILURES = 10, 3
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh", "tini", "dumb-init"})


def named_ports(container: Node | None) -> dict[str, int]:
    """The ports of a container by their names."""
    ports = container.get("ports") if container is not None else None
    found = {scalar(port, "name"): as_integer(scalar(port, "containerPort")) for port in mappings(ports)}
    return {name: number for name, number in found.items() if name and number}


def tell_probes(
    container: Node, file: Document, resources: Resources, *, alone: bool, usual: int | None = None
) -> None:
    """Note the probes of a container. `alone`: it is the only one of its pod; `usual`: the port of a probe without."""
    named = named_ports(container)
    others = alone and not _in_shell(container)
    for name in _PROBES:
        entry = container.entry(name)
        if entry is None or not entry.value.is_mapping:
            continue
        for kind in ("httpGet", "tcpSocket"):
            asked = entry.value.entry(kind)
            if asked is None or asked.value.get("host") is not None:
                continue
            at = asked.value.entry("port") or asked
            number = numbered(at.value.value, named) if at is not asked else usual
            if number:
                ask = Asked((number,), name, f"{name}.{kind}.port", file.path, at.value.span, True, others)
                resources.asked_ports.append(ask)
    _killed_after(container, file, resources)


def _in_shell(container: Node) -> bool:
    """Whether a shell starts the server, beside which it may start others."""
    for key in ("command", "args"):
        words = container.get(key)
        first = next(iter(words.items()), None) if words is not None and words.is_sequence else None
        if first is not None and str(first.value).rpartition("/")[2] in _SHELLS:
            return True
    return False


def _killed_after(container: Node, file: Document, resources: Resources) -> None:
    """The latest second at which the probe that runs first kills a container where nothing answers it."""
    entry = container.entry("startupProbe") or container.entry("livenessProbe")
    if entry is None or not entry.value.is_mapping:
        return
    kind = next((kind for kind in ("httpGet", "tcpSocket") if entry.value.get(kind) is not None), None)
    delay, period, failures = (
        _number(entry.value, key, usual)
        for key, usual in (("initialDelaySeconds", 0), ("periodSeconds", _PERIOD), ("failureThreshold", _FAILURES))
    )
    if kind is None or delay is None or not period or not failures:
        return
    name = str(entry.key.value)
    resources.tell("container.killed_after", delay + period * failures, file.path, name, entry.key.span)
    resources.tell("container.killing_probe", name, file.path, name, entry.key.span)
    resources.tell("container.killing_kind", kind, file.path, name, entry.key.span)


def _number(probe: Node, key: str, usual: int) -> int | None:
    node = value_at(probe, key)
    if node is None or node.value is None:
        return usual
    number = as_integer(node.value)
    return number if number is not None and number >= 0 else None
