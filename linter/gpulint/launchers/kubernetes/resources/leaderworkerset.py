"""LeaderWorkerSet: groups of one leader and its workers (LeaderWorkerSet 0.10, `api/leaderworkerset/v1`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ...launch import Launcher, Started
from ...shell.shell import Word
from ...values import mapping_at
from ..container import written
from ..group import Member, jobs_of_group, pods_of
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from ....source.document import Document
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "leaderworkerset"


def read(item: Object, manifests: Manifests) -> Started:
    """The jobs of one group; the replicas are as many servers of their own."""
    return jobs_of_template("spec.leaderWorkerTemplate", item, manifests)


def jobs_of_template(path: str, item: Object, manifests: Manifests) -> Started:
    """The jobs of a leader and its workers; without a template of its own the leader is a worker."""
    file, template = manifests.file, mapping_at(item.root, path)
    if template is None:
        return Started([], [], "has no pod")
    size = template.get("size")
    count = as_integer(size.value) if size is not None else 1
    members = pods_of("leader", template.find("leaderTemplate.spec"))
    worker = mapping_at(template, "workerTemplate.spec")
    if worker is not None:
        rest = count - len(members) if count is not None else None
        members.append(Member("worker" if members else "", worker, rest))
    return jobs_of_group(members, file, manifests.project, item.part, _variables(size, file))


def _variables(size: Node | None, file: Document) -> dict[str, Word]:
    """What the controller sets in the leader (pkg/utils/pod/pod_utils.go)."""
    count = written(file, size, {}) if size is not None else Word("1", (0,))
    return {"LWS_GROUP_SIZE": count, "LWS_WORKER_INDEX": Word("0", (-1,))}


LAUNCHER = Launcher(
    NAME, "LeaderWorkerSet", "LeaderWorkerSet 0.10", recogniser(NAME), launches, "GPUs of a pod x `size`, node labels"
)
