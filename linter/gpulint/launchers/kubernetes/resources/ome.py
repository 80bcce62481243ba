"""OME: serving runtimes and inference services (ome.io/v1beta1 OME 0.1.5 at commit 17b77edad).

A runtime starts its server with `$(MODEL_PATH)`, which OME sets to the files of the base model that a service names.
Base models and runtimes that a file does not hold are looked up among those that OME ships.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ....formats.core.coercion import as_integer
from ....formats.core.placeholders import is_blank
from ....job.origin import Origin
from ....repository.images import versions
from ...launch import Launcher, Resources, Started, combined
from ...shell.shell import Word
from ...values import listed, mapping_at, value_at
from ..command import Assembly
from ..container import jobs_of_container
from ..manifests import launches, recogniser
from ..pod import container_of, read_node, read_resources
from .presets import table

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "ome"
_RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")
_MODELS = ("BaseModel", "ClusterBaseModel")
_SECTIONS = (("engine", "engineConfig", "engine"), ("decoder", "decoderConfig", "decoder"))
"""For people; its key in a runtime; its key in a service."""
_FLAGS = ("model", "model-path", "model-id")


class _Model:
    """The model that a server is given: its words' place, and how it is known."""

    def __init__(self, name: str, at: Node, origin: Origin) -> None:
        start = at.span.start
        self.variables = {"MODEL_PATH": Word(name, (start,) * len(name))}
        self.implied = dict.fromkeys(_FLAGS, origin)


def read(item: Object, manifests: Manifests) -> Started:
    """The servers of a runtime, or of the service that uses it."""
    if item.kind in _MODELS:
        return Started([], [], "a base model; an inference service defines how it is served")
    if item.kind in _RUNTIMES:
        if manifests.used_by("InferenceService", "spec.runtime.name", item.name):
            return Started([], [])
        return _runtime(item, _model_of_runtime(item, manifests), item.part, manifests)
    return _service(item, manifests)


def _service(item: Object, manifests: Manifests) -> Started:
    """A service: its own engine, else the runtime that it names, else the one that OME ships for the model."""
    name, given = value_at(item.root, "spec.model.name"), value_at(item.root, "spec.runtime.name")
    if name is None or not isinstance(name.value, str):
        return Started([], [], "sets no model")
    hub = _hub_id(name.value, manifests)
    model = _Model(hub, name, Origin("derived", f"the base model {name.value}")) if hub else None
    own = _servers(item.root.get("spec"), 2, model, item.part, manifests)
    if own.launches:
        return own
    runtime = manifests.named(_RUNTIMES, given.value) if given is not None else None
    if runtime is not None:
        return _runtime(runtime, model, item.part, manifests)
    shipped = table("ome")["runtimes"]
    names = [str(given.value)] if given is not None else [f"{kind}-{name.value}" for kind in ("srt", "vllm")]
    row = next((shipped[each] for each in names if each in shipped), None)
    if row is None:
        what = f"the runtime {names[0]}" if given is not None else "a runtime selected by OME"
        return Started([], [], f"serves {name.value} on {what}, which is in another file")
    return _shipped(row, given if given is not None else name, model, item, manifests)


def _shipped(row: dict[str, Any], at: Node, model: _Model | None, item: Object, manifests: Manifests) -> Started:
    """The server of a runtime that OME ships."""
    line = Assembly(manifests.file, at, "", model.variables if model is not None else None)
    for word in row["words"]:
        path = line.variables.get("MODEL_PATH")
        line.take([path if word == "$(MODEL_PATH)" and path is not None else Word(word, (at.span.start,) * len(word))])
    resources = Resources()
    where = (manifests.file.path, "spec.runtime.name", at.span, "from OME's own runtime")
    resources.state("gpus_per_node", row["gpus"] or None, *where)
    resources.state("nodes", row["nodes"] if row["nodes"] > 1 else None, *where)
    flags = [word[2:].partition("=")[0] for word in row["words"] if word.startswith("--")]
    line.implied = dict.fromkeys(flags, Origin("default", "from OME's own runtime"))
    line.implied |= model.implied if model is not None else {}
    started = line.jobs(manifests.project, resources, item.part, versions(row["image"]))
    return started.each(ships=table("ome")["upstream"])


def _runtime(item: Object, model: _Model | None, part: str, manifests: Manifests) -> Started:
    return combined([_servers(item.root.get("spec"), 1, model, part, manifests)], "a runtime without an engine")


def _servers(spec: Node | None, column: int, model: _Model | None, part: str, manifests: Manifests) -> Started:
    """The engine and the decoder of a runtime or a service; a leader starts what its workers join."""
    sections = ((row[0], mapping_at(spec, row[column])) for row in _SECTIONS)
    return combined(
        (_server(section, model, f"{part}, {role}", manifests) for role, section in sections if section is not None), ""
    )


def _server(section: Node, model: _Model | None, part: str, manifests: Manifests) -> Started:
    pod = mapping_at(section, "leader") or section
    runner = mapping_at(pod, "runner")
    if runner is None:
        return Started([], [])
    file, resources = manifests.file, Resources()
    read_resources(pod, runner, file, resources)
    read_node(section, file, resources)
    size = section.find("worker.size")
    workers = as_integer(size.value.value) if size is not None else 1 if section.get("worker") is not None else 0
    resources.nodes = 1 + workers if workers else None
    container = container_of(runner, file, model.variables if model is not None else None)
    started = jobs_of_container(container, file, manifests.project, resources, part)
    return started.each(implied=model.implied if model is not None else {})


def _model_of_runtime(item: Object, manifests: Manifests) -> _Model | None:
    """The model that a runtime is for: the hub id that it is served as, else the base model that it is named after."""
    engine = value_at(item.root, "spec.engineConfig")
    runner = value_at(engine, "leader.runner") or value_at(engine, "runner")
    words = listed(value_at(runner, "command")) + listed(value_at(runner, "args"))
    for before, word in pairwise(words):
        served = str(word.value)
        if before.value == "--served-model-name" and served.count("/") == 1 and not is_blank(served):
            return _Model(served, word, Origin("assumed", "its served name"))
    base = item.name.partition("-")[2]
    hub, name = _hub_id(base, manifests), value_at(item.root, "metadata.name")
    if not hub or name is None:
        return None
    return _Model(hub, name, Origin("assumed", f"the base model {base}, which the runtime is named after"))


def _hub_id(name: str, manifests: Manifests) -> str:
    """The hub id of a base model: of the file, else of those that OME ships; empty where neither has it."""
    model = manifests.named(_MODELS, name)
    uri = value_at(model.root, "spec.storage.storageUri") if model is not None else None
    if uri is not None:
        return str(uri.value)[5:] if str(uri.value).startswith("hf://") else ""
    found: str = table("ome")["models"].get(name, "")
    return found


LAUNCHER = Launcher(NAME, "OME serving resource", "OME 0.1.5", recogniser(NAME), launches, "GPUs of the runner")
