"""llmaz: a Playground serves OpenModels with a backend (0.1.4 at 3c13ff343, `api/`); a Service is a group of pods.

A backend that the file does not hold is the one of that name in llmaz's chart; without a name it is vLLM.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ....formats.core.coercion import as_integer
from ....job.origin import Origin
from ...commands.images import entrypoint, versions
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...quantities import size
from ...shell.shell import Word
from ..command import Assembly
from ..manifests import launches, recogniser
from ..pod import GPU_RESOURCES, listed, mappings, read_asked
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
        template = item.root.find("spec.workloadTemplate")
        if template is None or not template.value.is_mapping:
            return Started([], [], "has no pod")
        return jobs_of_template(template.value, manifests.file, manifests.project, item.part)
    return _playground(item, manifests)


def _playground(item: Object, manifests: Manifests) -> Started:
    claims = _claims(item.root)
    if not claims:
        return Started([], [], "claims no model")
    models = [manifests.named(("OpenModel",), claim.value) for claim in claims]
    main = models[0]
    if main is None:
        return Started([], [], f"serves the model {claims[0].value}, which is in another file")
    config = _at(item.root, "spec.backendRuntimeConfig")
    name = _text(config, "backendName") or _DEFAULT
    backend = _backend(name, manifests)
    if backend is None:
        return Started([], [], f"the backend {name} is in another file")
    speculative = len(claims) > 1
    chosen = _text(config, "configName") or ("speculative-decoding" if speculative else "default")
    recommended = backend["configs"].get(chosen)
    if recommended is None:
        return Started([], [], f"the backend {name} has no config {chosen}")
    line = Assembly(manifests.file, claims[0], "")
    fields = {
        "ModelPath": _path(main, manifests),
        "DraftModelPath": _path(models[1], manifests) if speculative else None,
    }
    version = _text(config, "version") or backend["version"]
    image = f"{backend['image']}:{version}"
    for text in [*(backend["command"] or entrypoint(backend["image"])), *recommended["args"]]:
        line.take([_filled(text, fields, claims[0])])
    if config is not None:
        line.words(listed(config.get("args")))
    resources = _resources(item, main, config, recommended, manifests)
    project = manifests.project
    started = jobs_of_commands([line.command()], manifests.file, project, resources, item.part, versions(image))
    note = f"{chosen} config of the backend {name}"
    flags = [text[2:] for text in recommended["args"] if text.startswith("--") and not text.startswith("--model")]
    implied = {flag.replace("_", "-"): Origin("default", note) for flag in flags}
    return started._replace(launches=[launch._replace(implied=implied) for launch in started.launches])


def _claims(root: Node) -> list[Node]:
    """The names of the claimed models, the main one first."""
    one = _at(root, "spec.modelClaim.modelName")
    if one is not None:
        return [one]
    several = _at(root, "spec.modelClaims.models")
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
            "shared_memory": _text(config, "sharedMemorySize") or "",
            "memory": "",
        }
        for config in mappings(spec.get("recommendedConfigs") if spec is not None else None)
        if config.get("name") is not None
    }
    return {
        "image": _text(spec, "image") or "",
        "version": _text(spec, "version") or "",
        "command": [str(word.value) for word in listed(spec.get("command") if spec is not None else None)],
        "configs": configs,
    }


def _path(model: Object | None, manifests: Manifests) -> Word | None:
    """The hub id of a model, in the place of the folder that it is downloaded to; None for other sources."""
    node = _at(model.root, "spec.source.modelHub.modelID") if model is not None else None
    if node is None:
        return None
    from ..container import written

    return written(manifests.file, node, {})


def _filled(text: str, fields: dict[str, Word | None], at: Node) -> Word:
    """An argument of a backend; a model that is not of a hub stays unknown."""
    start = at.span.start
    match = _FIELD.fullmatch(text.strip())
    if match is None:
        return Word(text, (start,) * len(text), known="{{" not in text)
    found = fields.get(match[1])
    return found if found is not None else Word(f"${match[1]}", (start,) * (len(match[1]) + 1), known=False)


def _resources(
    item: Object, model: Object, config: Node | None, recommended: dict[str, Any], manifests: Manifests
) -> Resources:
    """The playground's own request, else the first flavour of the model: its GPUs, and the kind it is named after."""
    path = manifests.file.path
    resources = Resources()
    own = config.get("resources") if config is not None else None
    read_asked(own, manifests.file, resources)
    flavour = next(iter(mappings(_at(model.root, "spec.inferenceConfig.flavors"))), None)
    if flavour is not None:
        for entry in (flavour.get("limits") or flavour).entries():
            if str(entry.key.value) in GPU_RESOURCES and resources.gpus_per_node is None:
                number = as_integer(entry.value.value)
                resources.state("gpus_per_node", number or None, path, str(entry.key.value), entry.value.span)
        name = flavour.get("name")
        if name is not None and isinstance(name.value, str):
            resources.state("gpu", name.value, path, "spec.inferenceConfig.flavors", name.span, "the model's flavor")
    shared = _at(item.root, "spec.backendRuntimeConfig.sharedMemorySize")
    if shared is not None:
        number = size(shared.value, binary=False)
        resources.state("shared_memory", number, path, "sharedMemorySize", shared.span)
    elif recommended["shared_memory"]:
        resources.shared_memory = size(recommended["shared_memory"], binary=False)
        resources.origins["shared_memory"] = Origin("default", "from llmaz's chart")
    return resources


def _text(node: Node | None, key: str) -> str | None:
    value = node.get(key) if node is not None else None
    return str(value.value) if value is not None and value.is_scalar and value.value is not None else None


def _at(root: Node, path: str) -> Node | None:
    entry = root.find(path)
    return entry.value if entry is not None else None


LAUNCHER = Launcher(NAME, "llmaz resource", "llmaz 0.1.4", recogniser(NAME), launches, "flavors of the model")
