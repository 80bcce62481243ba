"""LeaderWorkerSet: groups of one leader and its workers (LeaderWorkerSet 0.10, `api/leaderworkerset/v1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started
from ...shell.shell import Word
from ..container import written
from ..group import Member, jobs_of_group
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from ....formats.core.format import Project
    from ....source.document import Document
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "leaderworkerset"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of one group; the replicas are as many servers of their own."""
    template = item.root.find("spec.leaderWorkerTemplate")
    if template is None or not template.value.is_mapping:
        return Started([], [], "has no pod")
    return jobs_of_template(template.value, manifests.file, manifests.project, item.part)


def jobs_of_template(template: Node, file: Document, project: Project, part: str) -> Started:
    """The jobs of a leader and its workers; without a template of its own the leader is a worker."""
    entry = template.entry("size")
    size = as_integer(entry.value.value) if entry is not None else 1
    leader, worker = template.find("leaderTemplate.spec"), template.find("workerTemplate.spec")
    members = []
    if leader is not None and leader.value.is_mapping:
        members.append(Member("leader", leader.value, 1))
    if worker is not None and worker.value.is_mapping:
        rest = size - len(members) if size is not None else None
        members.append(Member("worker" if members else "", worker.value, rest))
    if not members:
        return Started([], [], "has no pod")
    return jobs_of_group(members, file, project, part, _variables(entry.value if entry else None, file))


def _variables(size: Node | None, file: Document) -> dict[str, Word]:
    """What the controller sets in the leader (pkg/utils/pod/pod_utils.go)."""
    count = written(file, size, {}) if size is not None else Word("1", (0,))
    return {"LWS_GROUP_SIZE": count, "LWS_WORKER_INDEX": Word("0", (-1,))}


LAUNCHER = Launcher(
    NAME, "LeaderWorkerSet", "LeaderWorkerSet 0.10", recogniser(NAME), launches, "GPUs of a pod x `size`, node labels"
)
