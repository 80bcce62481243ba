"""The machines that a hostfile lists, `worker-1 slots=8` a line, as DeepSpeed and its launchers read them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ...source.referenced import on_disk

if TYPE_CHECKING:
    from ...source.node import Entry
    from ..launch import Resources

MAX_SIZE = 64 << 10
"""Characters of a hostfile."""

_HOST = re.compile(r"^\s*[^\s#]\S*\s+slots\s*=\s*(\d+)", re.MULTILINE)


def state_hosts(resources: Resources, entry: Entry, path: str) -> None:
    """The GPUs of a node and the nodes, where the hostfile beside a file is here and its nodes are alike."""
    named = entry.value.value
    if not on_disk() or not isinstance(named, str) or os.path.isabs(named):
        return
    folder = os.path.realpath(os.path.dirname(path) or ".")
    hosts = os.path.realpath(os.path.join(folder, named))
    if not hosts.startswith(os.path.join(folder, "")) or not os.path.isfile(hosts):
        return
    with open(hosts, encoding="utf-8", errors="replace") as file:
        slots = [int(found) for found in _HOST.findall(file.read(MAX_SIZE))]
    if slots and len(set(slots)) == 1 and slots[0] > 0:
        note = f"{len(slots)} hosts of {slots[0]} slots in {named}"
        resources.state("gpus_per_node", slots[0], path, "hostfile", entry.value.span, note)
        resources.state("nodes", len(slots), path, "hostfile", entry.value.span, note)
