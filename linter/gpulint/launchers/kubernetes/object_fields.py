"""The fields of Kubernetes objects held against the definitions that the API server has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.keys import key_problems, load

if TYPE_CHECKING:
    from ...formats.core.format import Problem
    from ...source.document import Document
    from ...source.node import Node

NAME = "kubernetes"


def field_problems(document: Document, root: Node, group: str, kind: str) -> list[Problem]:
    """The fields of an object that its definition lacks, or takes in another type; none for a kind without one."""
    version = str(getattr(root.get("apiVersion"), "value", "")).rpartition("/")[2]
    definition = f"{group}/{version}/{kind}"
    if definition not in load(NAME)["$defs"]:
        return []
    return key_problems(document, NAME, node=root, definition=definition)
