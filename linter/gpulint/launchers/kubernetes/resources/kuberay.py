"""KubeRay: RayJob, RayCluster, RayService (KubeRay 1.7, `ray.io/v1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...commands.jobs import jobs_of
from ...embedded import embedded
from ...launch import Launch, Launcher, Started
from ...shell.script import of_scalar
from ..group import Member, resources_of
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod, mappings

if TYPE_CHECKING:
    from ....source.node import Node
    from ...launch import Resources
    from ..manifests import Manifests, Object

NAME = "kuberay"
_CLUSTERS = {"RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig", "RayCluster": "spec"}


def read(item: Object, manifests: Manifests) -> Started:
    """The entrypoint of a RayJob, the applications of a RayService, or what the pods of a cluster start themselves."""
    entry = item.root.find(_CLUSTERS[item.kind])
    found = members(entry.value) if entry is not None else []
    resources = resources_of(found, manifests.file)
    if item.kind == "RayJob":
        script = item.root.find("spec.entrypoint")
        if script is None or not isinstance(script.value.value, str):
            return Started([], [], "a Ray job without an entrypoint")
        text = of_scalar(manifests.file, script.value)
        return jobs_of(text, manifests.file, manifests.project, resources, None, item.part)
    if item.kind == "RayService":
        return _serve(item, manifests, resources)
    return jobs_of_cluster(found, item.part, manifests)


def jobs_of_cluster(found: list[Member], part: str, manifests: Manifests) -> Started:
    """What the head or the workers of a cluster start besides Ray."""
    resources = resources_of(found, manifests.file)
    for member in found:
        label = f"{part}, {member.role}"
        started = jobs_of_pod(
            member.spec, manifests.file, manifests.project, label, None, resources, mounts_shared_memory=True
        )
        if started.launches:
            return started
    return Started([], [], "a Ray cluster, to which jobs are submitted separately")


def members(cluster: Node) -> list[Member]:
    """The head and the worker groups; `numOfHosts` pods stand for one replica of a group."""
    found = []
    head = cluster.find("headGroupSpec.template.spec")
    if head is not None and head.value.is_mapping:
        found.append(Member("head", head.value, 1))
    for group in mappings(cluster.get("workerGroupSpecs")):
        spec = group.find("template.spec")
        if spec is None or not spec.value.is_mapping:
            continue
        count: int | None = 1
        for name in ("replicas", "numOfHosts"):
            number = group.get(name)
            value = as_integer(number.value) if number is not None else 1
            count = count * value if count is not None and value is not None else None
        name_node = group.get("groupName")
        found.append(Member(f"group {name_node.value}" if name_node is not None else "workers", spec.value, count))
    return found


def _serve(item: Object, manifests: Manifests, resources: Resources) -> Started:
    """The applications of `serveConfigV2`: those whose arguments are a config of a known format."""
    from ....formats.core.registry import recognise

    entry = item.root.find("spec.serveConfigV2")
    config = embedded(manifests.file, entry.value) if entry is not None else None
    if config is None:
        return Started([], [], "a Ray service without a readable `serveConfigV2`")
    form = recognise(config)
    if form is not None:
        return Started([Launch(f"{item.part}, serveConfigV2", form.name, config, resources)], [])
    found, paths = [], []
    for application in mappings(config.root.get("applications")):
        arguments = application.get("args")
        path = application.get("import_path")
        paths.append(str(path.value).strip() if path is not None and path.is_scalar else "")
        document = config._replace(roots=[arguments]) if arguments is not None and arguments.is_mapping else None
        form = recognise(document) if document is not None else None
        if document is not None and form is not None:
            found.append(Launch(f"{item.part}, {paths[-1]}", form.name, document, resources))
    named = next((path for path in paths if path), "")
    reason = f"serves Python code ({named})" if named else "has no application"
    return Started(found, [], "" if found else reason)


LAUNCHER = Launcher(
    NAME, "KubeRay resource", "KubeRay 1.7", recogniser(NAME), launches, "GPUs of the worker groups x `replicas`"
)
