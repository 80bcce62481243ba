"""NVIDIA's NIM operator: a NIMService or NIMPipeline (`apps.nvidia.com/v1alpha1`).

A NIM chooses its engine, its precision and its parallel degrees from the profiles of its image when it starts
(docs.nvidia.com/nim/large-language-models, "Model Profiles"), so that no manifest says what it will hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch import Launcher, Started
from ..manifests import launches, recogniser

if TYPE_CHECKING:
    from ..manifests import Manifests, Object

NAME = "nim"


def read(item: Object, manifests: Manifests) -> Started:  # noqa: ARG001
    """No job, and why."""
    return Started([], [], "a NIM, which selects engine, precision and parallel sizes itself at start")


LAUNCHER = Launcher(
    NAME, "NIM service", "k8s-nim-operator 3.1", recogniser(NAME), launches, "not read: depends on the profile"
)
