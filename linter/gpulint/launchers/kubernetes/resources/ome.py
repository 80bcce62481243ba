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
from ...commands.images import versions
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...shell.shell import Word
from ..command import Assembly
from ..container import jobs_of_container
from ..manifests import launches, recogniser
from ..pod import container_of, listed, read_node, read_resources
from .presets import table

if TYPE_CHECKING:
    from ....source.document import Document
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
        if _used(item.name, manifests):
            return Started([], [])
        return _runtime(item, _model_of_runtime(item, manifests), item.part, manifests)
    return _service(item, manifests)


def _service(item: Object, manifests: Manifests) -> Started:
    """A service: its own engine, else the runtime that it names, else the one that OME ships for the model."""
    name = item.root.find("spec.model.name")
    if name is None or not isinstance(name.value.value, str):
        return Started([], [], "sets no model")
    hub = _hub_id(str(name.value.value), manifests)
    origin = Origin("derived", f"the base model {name.value.value}")
    model = _Model(hub, name.value, origin) if hub else None
    own = _servers(item.root.get("spec"), 2, model, item.part, manifests)
    if own.launches:
        return own
    given = item.root.find("spec.runtime.name")
    runtime = manifests.named(_RUNTIMES, given.value.value) if given is not None else None
    if runtime is not None:
        return _runtime(runtime, model, item.part, manifests)
    shipped = table("ome")["runtimes"]
    names = (
        [str(given.value.value)] if given is not None else [f"{kind}-{name.value.value}" for kind in ("srt", "vllm")]
    )
    row = next((shipped[each] for each in names if each in shipped), None)
    if row is None:
        what = f"the runtime {names[0]}" if given is not None else "a runtime selected by OME"
        return Started([], [], f"serves {name.value.value} on {what}, which is in another file")
    return _shipped(row, given.value if given is not None else name.value, model, item, manifests)


def _shipped(row: dict[str, Any], at: Node, model: _Model | None, item: Object, manifests: Manifests) -> Started:
    """The server of a runtime that OME ships."""
    line = Assembly(manifests.file, at, "", model.variables if model is not None else None)
    for word in row["words"]:
        path = line.variables.get("MODEL_PATH")
        line.take([path if word == "$(MODEL_PATH)" and path is not None else Word(word, (at.span.start,) * len(word))])
    resources = Resources()
    note = "from OME's own runtime"
    path_ = manifests.file.path
    resources.state("gpus_per_node", row["gpus"] or None, path_, "spec.runtime.name", at.span, note)
    resources.state("nodes", row["nodes"] if row["nodes"] > 1 else None, path_, "spec.runtime.name", at.span, note)
    known = versions(row["image"])
    started = jobs_of_commands([line.command()], manifests.file, manifests.project, resources, item.part, known)
    flags = [word[2:].partition("=")[0] for word in row["words"] if word.startswith("--")]
    implied = {**{flag.replace("_", "-"): Origin("default", note) for flag in flags}}
    implied.update(model.implied if model is not None else {})
    return started._replace(launches=[launch._replace(implied=implied) for launch in started.launches])


def _runtime(item: Object, model: _Model | None, part: str, manifests: Manifests) -> Started:
    spec = item.root.get("spec")
    started = _servers(spec, 1, model, part, manifests)
    if not started.launches and not started.reason:
        return started._replace(reason="a runtime without an engine")
    return started


def _servers(spec: Node | None, column: int, model: _Model | None, part: str, manifests: Manifests) -> Started:
    """The engine and the decoder of a runtime or a service; a leader starts what its workers join."""
    found, problems, reason = [], [], ""
    for row in _SECTIONS:
        section = spec.get(row[column]) if spec is not None else None
        leader = section.get("leader") if section is not None else None
        pod = leader if leader is not None and leader.is_mapping else section
        runner = pod.get("runner") if pod is not None else None
        if section is None or pod is None or runner is None or not runner.is_mapping:
            continue
        resources = Resources()
        read_resources(pod, runner, manifests.file, resources)
        read_node(section, manifests.file, resources)
        size = section.find("worker.size")
        workers = as_integer(size.value.value) if size is not None else 1 if section.get("worker") is not None else 0
        resources.nodes = 1 + workers if workers else None
        started = _start(runner, manifests.file, model, resources, f"{part}, {row[0]}", manifests)
        found += started.launches
        problems += started.problems
        reason = reason or started.reason
    return Started(found, problems, "" if found else reason)


def _start(
    runner: Node, file: Document, model: _Model | None, resources: Resources, part: str, manifests: Manifests
) -> Started:
    container = container_of(runner, file, model.variables if model is not None else None)
    started = jobs_of_container(container, file, manifests.project, resources, part)
    implied = model.implied if model is not None else {}
    return started._replace(launches=[launch._replace(implied=implied) for launch in started.launches])


def _model_of_runtime(item: Object, manifests: Manifests) -> _Model | None:
    """The model that a runtime is for: the hub id that it is served as, else the base model that it is named after."""
    engine = item.root.find("spec.engineConfig")
    runner = engine.value.find("leader.runner") or engine.value.find("runner") if engine is not None else None
    words = listed(runner.value.get("command")) + listed(runner.value.get("args")) if runner is not None else []
    for before, word in pairwise(words):
        served = str(word.value)
        if before.value == "--served-model-name" and served.count("/") == 1 and not is_blank(served):
            return _Model(served, word, Origin("assumed", "its served name"))
    base = item.name.partition("-")[2]
    hub = _hub_id(base, manifests)
    name = item.root.find("metadata.name")
    if not hub or name is None:
        return None
    return _Model(hub, name.value, Origin("assumed", f"the base model {base}, which the runtime is named after"))


def _hub_id(name: str, manifests: Manifests) -> str:
    """The hub id of a base model: of the file, else of those that OME ships; empty where neither has it."""
    model = manifests.named(_MODELS, name)
    uri = model.root.find("spec.storage.storageUri") if model is not None else None
    if uri is not None:
        text = str(uri.value.value)
        return text[5:] if text.startswith("hf://") else ""
    found: str = table("ome")["models"].get(name, "")
    return found


def _used(name: str, manifests: Manifests) -> bool:
    """Whether a service of the file uses the runtime."""
    services = (item.root.find("spec.runtime.name") for item in manifests.objects if item.kind == "InferenceService")
    return any(entry is not None and entry.value.value == name for entry in services)


LAUNCHER = Launcher(NAME, "OME serving resource", "OME 0.1.5", recogniser(NAME), launches, "GPUs of the runner")
