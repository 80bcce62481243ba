"""llmaz: a Playground serves OpenModels with a backend (0.1.4 at 3c13ff343, `api/`); a Service is a group of pods.

A backend that the file does not hold is the one of that name in llmaz's chart; without a name it is vLLM.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....job.origin import Origin
from ....repository.images import versions
from ...commands.images import entrypoint
from ...launch import Launcher, Resources, Started
from ...quantities import quantity
from ...shell.shell import Word
from ...values import count, listed, mappings, scalar, value_at
from ..command import Assembly
from ..container import written
from ..manifests import launches, recogniser
from ..pod import GPUS, read_asked
from .leaderworkerset import jobs_of_template
from .presets import table

if TYPE_CHECKING:
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "llmaz"
_DEFAULT = "vllm"
_FIELD = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")


def read(item: Object, manifests: Manifests) -> Started:
    """The server of a playground or a service."""
    if item.kind == "OpenModel":
        served = any(other.kind in ("Playground", "Service") for other in manifests.objects)
        return Started([], [], "" if served else "a model; a Playground defines how it is served")
    if item.kind == "BackendRuntime":
        used = any(other.kind == "Playground" for other in manifests.objects)
        return Started([], [], "" if used else "a backend; a Playground sets the model that it serves")
    if item.kind == "Service":
        return jobs_of_template("spec.workloadTemplate", item, manifests)
    return _playground(item, manifests)


def _playground(item: Object, manifests: Manifests) -> Started:
    claims = _claims(item.root)
    if not claims:
        return Started([], [], "claims no model")
    models = [manifests.named(("OpenModel",), claim.value) for claim in claims]
    main = models[0]
    if main is None:
        return Started([], [], f"serves the model {claims[0].value}, which is in another file")
    config = value_at(item.root, "spec.backendRuntimeConfig")
    name = scalar(config, "backendName") or _DEFAULT
    backend = _backend(name, manifests)
    if backend is None:
        return Started([], [], f"the backend {name} is in another file")
    speculative = len(claims) > 1
    chosen = scalar(config, "configName") or ("speculative-decoding" if speculative else "default")
    recommended = backend["configs"].get(chosen)
    if recommended is None:
        return Started([], [], f"the backend {name} has no config {chosen}")
    line = Assembly(manifests.file, claims[0], "")
    fields = {
        "ModelPath": _path(main, manifests),
        "DraftModelPath": _path(models[1], manifests) if speculative else None,
    }
    version = scalar(config, "version") or backend["version"]
    image = f"{backend['image']}:{version}"
    for text in [*(backend["command"] or entrypoint(backend["image"])), *recommended["args"]]:
        line.take([_filled(text, fields, claims[0])])
    if config is not None:
        line.words(listed(config.get("args")))
    resources = _resources(main, config, recommended, manifests)
    flags = [text[2:] for text in recommended["args"] if text.startswith("--") and not text.startswith("--model")]
    line.implied = dict.fromkeys(flags, Origin("default", f"{chosen} config of the backend {name}"))
    started = line.jobs(manifests.project, resources, item.part, versions(image))
    stated = bool(scalar(config, "version")) or manifests.named(("BackendRuntime",), name) is not None
    return started if stated else started.each(ships=table("llmaz")["upstream"])


def _claims(root: Node) -> list[Node]:
    """The names of the claimed models, the main one first."""
    one = value_at(root, "spec.modelClaim.modelName")
    if one is not None:
        return [one]
    several = value_at(root, "spec.modelClaims.models")
    found = [(claim.get("role"), claim.get("name")) for claim in mappings(several)]
    ordered = sorted(found, key=lambda row: row[0] is not None and row[0].value == "draft")
    return [name for _, name in ordered if name is not None]


def _backend(name: str, manifests: Manifests) -> dict[str, Any] | None:
    """The command, image and configs of a backend: of the file, else of llmaz's chart."""
    own = manifests.named(("BackendRuntime",), name)
    if own is None:
        row: dict[str, Any] | None = table("llmaz")["backends"].get(name)
        return row
    spec = own.root.get("spec")
    configs = {
        str(config.get("name").value): {  # type: ignore[union-attr]
            "args": [str(word.value) for word in listed(config.get("args"))],
            "shared_memory": scalar(config, "sharedMemorySize"),
            "memory": "",
        }
        for config in mappings(value_at(spec, "recommendedConfigs"))
        if config.get("name") is not None
    }
    return {
        "image": scalar(spec, "image"),
        "version": scalar(spec, "version"),
        "command": [str(word.value) for word in listed(value_at(spec, "command"))],
        "configs": configs,
    }


def _path(model: Object | None, manifests: Manifests) -> Word | None:
    """The hub id of a model, in the place of the folder that it is downloaded to; None for other sources."""
    node = value_at(model.root, "spec.source.modelHub.modelID") if model is not None else None
    return written(manifests.file, node, {}) if node is not None else None


def _filled(text: str, fields: dict[str, Word | None], at: Node) -> Word:
    """An argument of a backend; a model that is not of a hub stays unknown."""
    start = at.span.start
    match = _FIELD.fullmatch(text.strip())
    if match is None:
        return Word(text, (start,) * len(text), known="{{" not in text)
    found = fields.get(match[1])
    return found if found is not None else Word(f"${match[1]}", (start,) * (len(match[1]) + 1), known=False)


def _resources(model: Object, config: Node | None, recommended: dict[str, Any], manifests: Manifests) -> Resources:
    """The playground's own request, else the first flavour of the model: its GPUs, and the kind it is named after."""
    path = manifests.file.path
    resources = Resources()
    read_asked(value_at(config, "resources"), manifests.file, resources)
    flavour = next(iter(mappings(value_at(model.root, "spec.inferenceConfig.flavors"))), None)
    if flavour is not None:
        for entry in (flavour.get("limits") or flavour).entries():
            if str(entry.key.value) in GPUS and resources.gpus_per_node is None:
                resources.read("gpus_per_node", entry, path, parse=count)
        name = flavour.get("name")
        if name is not None and isinstance(name.value, str):
            resources.state("gpu", name.value, path, "spec.inferenceConfig.flavors", name.span, "the model's flavor")
    shared = config.entry("sharedMemorySize") if config is not None else None
    resources.read("shared_memory", shared, path, parse=quantity)
    if shared is None and recommended["shared_memory"]:
        resources.shared_memory = quantity(recommended["shared_memory"])
        resources.origins["shared_memory"] = Origin("default", "from llmaz's chart")
    return resources


LAUNCHER = Launcher(NAME, "llmaz resource", "llmaz 0.1.4", recogniser(NAME), launches, "flavors of the model")
