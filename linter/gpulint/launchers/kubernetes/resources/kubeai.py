"""KubeAI: a `Model` is a server of one engine on a resource profile (KubeAI chart 0.21, `api/k8s/v1/model_types.go`).

The resource profiles are those of the chart; a cluster may have others, which state neither GPU nor image here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....repository.images import versions
from ...commands.images import elsewhere, not_estimated
from ...launch import Launcher, Resources, Started
from ...values import listed, mapping_at, text, value_at
from ..command import Assembly
from ..container import listed_environment
from ..manifests import launches, recogniser
from .presets import table

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "kubeai"
_VENDOR = re.compile(r"^(nvidia|amd)-gpu-")
_SCHEME = re.compile(r"([a-z0-9]+)://")


def read(item: Object, manifests: Manifests) -> Started:
    """The server of a model: vLLM's flags are its `args` behind the model of `url`."""
    file = manifests.file
    spec = item.root.get("spec")
    engine, url = (value_at(spec, name) if text(spec, name).strip() else None for name in ("engine", "url"))
    if spec is None or engine is None or url is None:
        return Started([], [], "a model without an engine or a URL")
    profile = _profile(spec)
    if profile is not None and not profile.get("resource"):
        return Started([], [], f"serves on the CPU ({profile['name']})")
    device = elsewhere(str(profile["name"])) if profile is not None else ""
    if device:
        return Started([], [], not_estimated(device))
    if engine.value != "VLLM":
        return Started([], [], f"starts {engine.value}, whose flags gpulint does not read")
    scheme = _SCHEME.match(str(url.value))
    if scheme is None:
        return Started([], [], "a URL without a scheme is not a model")
    known = listed_environment(file, mapping_at(spec, "env"))
    line = Assembly(file, engine, "python3 -m vllm.entrypoints.openai.api_server", known)
    line.say("model", url, scheme.end() if scheme[1] == "hf" else 0)
    line.words(listed(spec.get("args")))
    adapters = spec.get("adapters")
    if adapters is not None and adapters.items():
        line.switch("enable-lora")
    resources = Resources()
    _read_resources(spec, profile, file.path, resources)
    image = spec.get("image")
    name = str(image.value) if image is not None else _image(profile)
    started = line.jobs(manifests.project, resources, item.part, versions(name))
    return started if image is not None else started.each(ships=table("kubeai")["upstream"])


def _profile(spec: Node) -> dict[str, Any] | None:
    """The profile of `resourceProfile: name:count` with its name and count."""
    name, _, count = text(spec, "resourceProfile").partition(":")
    if not text(spec, "resourceProfile").strip():
        return None
    row = table("kubeai")["profiles"].get(name, {"resource": "unknown"})
    return {**row, "name": name, "count": count}


def _read_resources(spec: Node, profile: dict[str, Any] | None, path: str, resources: Resources) -> None:
    node = spec.get("resourceProfile")
    if profile is None or node is None:
        return
    count = int(profile["count"]) if profile["count"].isdecimal() and len(profile["count"]) < 6 else 1
    resources.state("gpus_per_node", count or None, path, "spec.resourceProfile", node.span, "GPUs of the profile")
    kind = _VENDOR.sub("", profile["name"])
    resources.state("gpu", kind, path, "spec.resourceProfile", node.span, "GPU of the profile")


def _image(profile: dict[str, Any] | None) -> str:
    """The image that the chart gives a profile; of a cluster's own profile nothing is known."""
    images: dict[str, str] = table("kubeai")["images"]
    return images.get(profile["image"], images["default"]) if profile is not None and "image" in profile else ""


LAUNCHER = Launcher(NAME, "KubeAI model", "KubeAI chart 0.21", recogniser(NAME), launches, "`resourceProfile`")
