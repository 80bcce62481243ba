"""Baseten Truss `config.yaml`: a server's start command, an engine that is built, or a Python model (truss 0.11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...repository.images import versions
from ...source.node import Entry, Node
from ..commands.flags import inside
from ..commands.jobs import jobs_of
from ..kubernetes.container import listed_environment
from ..kubernetes.manifest import accelerator, renamed
from ..launch import Launch, Launcher, Resources, Started
from ..quantities import quantity
from ..shell.script import of_scalar
from ..values import mapping_at, text, value_at

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "truss"
_GPUS = {"H100_40GB": "h100-80gb-mig-3g.40gb", "A10G": "a10g", "A100": "a100-80gb", "V100": "v100-16gb"}
"""Baseten's names of accelerators (docs.baseten.co deployment/resources): its A100 has 80 GB."""

_MODELS = ("model", "model-path", "model_path", "model-id", "model_tag")


def recognise(document: Document) -> bool:
    """`model_name` with `resources` that say `accelerator`, `use_gpu` or `cpu`, or one of Truss's own sections."""
    root = document.root
    keys = set(root.keys())
    resources = root.get("resources")
    if "model_name" not in keys or resources is None or not resources.is_mapping:
        return bool({"trt_llm", "docker_server"} & keys) and "resources" in keys
    return bool(set(resources.keys()) & {"accelerator", "use_gpu", "cpu"})


def launches(document: Document, project: Project) -> Started:
    """The server of the start command, or TensorRT-LLM."""
    root = document.root
    resources = Resources()
    asked = root.find("resources.accelerator")
    accelerator(asked, document, resources, _GPUS)
    resources.read("host_memory", root.find("resources.memory"), document.path, "resources.memory", quantity)
    command = root.find("docker_server.start_command")
    if command is not None and isinstance(command.value.value, str):
        image = text(root, "base_image.image")
        script = of_scalar(document, command.value)
        started = jobs_of(script, document, project, resources, _variables(document), "server", versions(image))
        found = [launch._replace(config=_with_models(launch.config, document)) for launch in started.launches]
        return started._replace(launches=found)
    if root.get("trt_llm") is not None:
        return _engine(document, resources)
    if asked is None or asked.value.value is None:
        return Started([], [], "requests no GPU")
    return Started([], [], "runs the Python program of its `model` folder, which gpulint does not read")


def _variables(document: Document) -> dict[str, str]:
    stated = listed_environment(document, mapping_at(document.root, "environment_variables"))
    return {name: word.text for name, word in stated.items()}


def _caches(document: Document) -> dict[str, Node]:
    """Where the container finds each cached model, and the node that names it."""
    found: dict[str, Node] = {}
    section = document.root.get("model_cache")
    for item in section.items() if section is not None else ():
        repo, folder = item.get("repo_id"), text(item, "volume_folder")
        if repo is not None and folder:
            found[f"/app/model_cache/{folder}"] = repo
    return found


def _with_models(config: Document, document: Document) -> Document:
    """A config whose path into the model cache is the model that is cached there."""
    caches = _caches(document)
    more = [
        Entry(entry.key, caches[entry.value.value.rstrip("/")])
        for entry in config.root.entries()
        if entry.key.value in _MODELS and isinstance(entry.value.value, str) and entry.value.value.rstrip("/") in caches
    ]
    if not more:
        return config
    changed = inside(config, [*config.root.entries(), *more], config.root)
    changed.root.merged = config.root.merged
    return changed


def _engine(document: Document, resources: Resources) -> Started:
    """`trt_llm.build`, `trt_llm.runtime` and its `patch_kwargs` as one config of TensorRT-LLM."""
    section = document.root.get("trt_llm")
    base = text(section, "build.base_model")
    if base.startswith("encoder"):
        return Started([], [], "an embedding server (base_model: encoder), which gpulint does not estimate")
    repo = document.root.find("trt_llm.build.checkpoint_repository.repo")
    entries = [renamed(document, "model", repo)] if repo is not None else []
    for name in ("build", "runtime", "runtime.patch_kwargs"):
        part = value_at(section, name)
        for entry in part.entries() if part is not None else ():
            key = "model" if entry.key.value == "model_path" else str(entry.key.value)
            if key not in _NESTED:
                entries.append(renamed(document, key, entry))
    like = section if section is not None else document.root
    config = _with_models(inside(document, entries, like), document)
    return Started([Launch("trt_llm", "trtllm", config, resources)], [])


_NESTED = frozenset({"checkpoint_repository", "patch_kwargs", "speculator", "plugin_configuration"})

LAUNCHER = Launcher(NAME, "Truss config", "truss 0.11", recognise, launches, "`resources.accelerator`")
