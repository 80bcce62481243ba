"""Helm values of AI-Hypercomputer/gpu-recipes: `workload` with its GPUs and the config file that it is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.placeholders import is_blank
from ...formats.core.registry import recognise as recognise_format
from ...repository.images import versions
from ...source.document import SourceError
from ..commands.flags import inside, overlaid
from ..launch import Launch, Launcher, Resources, Started
from ..values import mapping_at, text
from .manifest import renamed

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node

NAME = "gpu_recipe"
NODE = 8
"""GPUs of one node: "one of: {<= 8, multiple of 8}" (values.yaml of the recipes)."""

_FRAMEWORKS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}


def recognise(document: Document) -> bool:
    """`workload` with `gpus` and an image, or a `dynamo` deployment with workers."""
    root = document.root
    workload = mapping_at(root, "workload")
    keys = set(workload.keys()) if workload is not None else set()
    if "gpus" in keys and keys & {"image", "configFile", "envs", "framework"}:
        return True
    return root.find("dynamo.decodeWorker") is not None or root.find("dynamo.prefillWorker") is not None


def launches(document: Document, project: Project) -> Started:
    """The job of the config file, on `workload.gpus`; a file of Python or of an unknown tool is named as the reason."""
    workload = mapping_at(document.root, "workload")
    if workload is None or document.root.get("dynamo") is not None:
        return Started([], [], "the flags of its workers are in files given at install time")
    resources = Resources()
    gpus = workload.entry("gpus")
    count = as_integer(gpus.value.value) if gpus is not None else None
    if gpus is not None and count:
        where = (document.path, "workload.gpus", gpus.value.span)
        resources.state("gpus_per_node", min(count, NODE), *where)
        if count > NODE:
            resources.state("nodes", count // NODE, *where)
    name = text(workload, "configFile")
    if not name or is_blank(name):
        return Started([], [], "has no config file: its chart runs a program")
    if name.endswith((".py", ".sh")):
        return Started([], [], f"its configuration is the program {name}")
    return _file(document, workload, name, resources, project)


def _file(document: Document, workload: Node, name: str, resources: Resources, project: Project) -> Started:
    try:
        config = project.open(name, document.path)
    except SourceError as error:
        return Started([], [], f"its config {name}: {error}")
    if config is None:
        return Started([], [], f"its config {name} is given at install time")
    form = recognise_format(config)
    format_ = _FRAMEWORKS.get(text(workload, "framework")) or (form.name if form is not None else "")
    if not format_:
        return Started([], [], f"its config {os.path.basename(name)} has an unknown format")
    model = workload.find("model.name")
    if model is not None and isinstance(model.value.value, str) and format_ in ("vllm", "sglang", "trtllm"):
        key = "model-path" if format_ == "sglang" else "model"
        config = overlaid(config, inside(document, [renamed(document, key, model)], workload))
    image = versions(text(workload, "image"))
    return Started([Launch("workload", format_, config, resources, None, {"launcher": document}, (), image)], [])


LAUNCHER = Launcher(
    NAME, "gpu-recipes values", "AI-Hypercomputer/gpu-recipes 2026-08", recognise, launches, "`workload.gpus`"
)
