"""KubeRay: RayJob, RayCluster, RayService (KubeRay 1.7, `ray.io/v1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...cloud import ray_serve
from ...commands.jobs import jobs_of
from ...embedded import embedded
from ...launch import Launch, Launcher, Started
from ...shell.script import of_scalar
from ...values import mapping_at, mappings, scalar, value_at
from ..group import pods_of, resources_of
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod

if TYPE_CHECKING:
    from ....source.node import Node
    from ...launch import Resources
    from ..group import Member
    from ..manifests import Manifests, Object

NAME = "kuberay"
_CLUSTERS = {"RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig", "RayCluster": "spec"}


def read(item: Object, manifests: Manifests) -> Started:
    """The entrypoint of a RayJob, the applications of a RayService, or what the pods of a cluster start themselves."""
    cluster = value_at(item.root, _CLUSTERS[item.kind])
    found = members(cluster) if cluster is not None else []
    resources = resources_of(found, manifests.file)
    if item.kind == "RayJob":
        entrypoint = value_at(item.root, "spec.entrypoint")
        if entrypoint is None or not isinstance(entrypoint.value, str):
            return Started([], [], "a Ray job without an entrypoint")
        script = of_scalar(manifests.file, entrypoint)
        return jobs_of(script, manifests.file, manifests.project, resources, None, item.part)
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
    found = pods_of("head", cluster.find("headGroupSpec.template.spec"))
    for group in mappings(cluster.get("workerGroupSpecs")):
        name = group.get("groupName")
        role = f"group {name.value}" if name is not None else "workers"
        found += pods_of(role, group.find("template.spec"), group.get("replicas"), group.get("numOfHosts"))
    return found


def _serve(item: Object, manifests: Manifests, resources: Resources) -> Started:
    """The applications of `serveConfigV2`: those whose arguments are a config of a known format."""
    from ....formats.core.registry import recognise

    config = embedded(manifests.file, value_at(item.root, "spec.serveConfigV2"))
    if config is None:
        return Started([], [], "a Ray service without a readable `serveConfigV2`")
    form = recognise(config)
    if form is not None:
        return Started([Launch(f"{item.part}, serveConfigV2", form.name, config, resources)], [])
    built = ray_serve.launches(config, manifests.project) if ray_serve.recognise(config) else Started([], [])
    if built.launches:
        # a model's file that is not here lies in the image
        return Started([_placed(launch, item.part, resources) for launch in built.launches], [])
    found, paths = [], []
    for application in mappings(config.root.get("applications")):
        arguments = mapping_at(application, "args")
        paths.append(scalar(application, "import_path").strip())
        document = config._replace(roots=[arguments]) if arguments is not None else None
        form = recognise(document) if document is not None else None
        if document is not None and form is not None:
            found.append(Launch(f"{item.part}, {paths[-1]}", form.name, document, resources))
    named = next((path for path in paths if path), "")
    reason = f"serves Python code ({named})" if named else "has no application"
    return Started(found, [], "" if found else reason)


def _placed(launch: Launch, part: str, cluster: Resources) -> Launch:
    """A model of an application on the GPUs of the cluster; the kind that it asks for itself wins."""
    own = cluster.copy()
    if launch.resources.gpu is not None:
        own.gpu, own.origins["gpu"] = launch.resources.gpu, launch.resources.origins["gpu"]
    return launch._replace(part=f"{part}, {launch.part}", resources=own)


LAUNCHER = Launcher(
    NAME, "KubeRay resource", "KubeRay 1.7", recogniser(NAME), launches, "GPUs of the worker groups x `replicas`"
)
