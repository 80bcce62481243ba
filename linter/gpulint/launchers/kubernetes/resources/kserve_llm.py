"""KServe's LLMInferenceService (KServe 0.20, `v1alpha2`): vLLM as `config/llmisvcconfig` starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.coercion import as_integer
from ....repository.images import versions
from ...launch import Resources, Started, combined
from ...shell.script import Script
from ...shell.shell import Word, commands
from ...values import listed, mapping_at, mappings, value_at
from ..command import Assembly
from ..container import jobs_of_container
from ..pod import container_of, read_resources
from .kserve_model import stored, with_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....source.node import Node
    from ..manifests import Manifests, Object

_DEGREES = (("tensor", "tensor-parallel-size"), ("pipeline", "pipeline-parallel-size"), ("data", "data-parallel-size"))
_CLAIM = "serving.kserve.io/exp-dra-device"
_DEFAULTS = "ghcr.io/llm-d/llm-d-cuda:v0.9.0"


def read_llm(item: Object, manifests: Manifests) -> Started:
    """The decode server of a service and, where it has one, its prefill server; a config by itself is a part."""
    if item.kind != "LLMInferenceService":
        return Started([], [], "a template without a model; an LLMInferenceService sets it")
    uri = value_at(item.root, "spec.model.uri")
    if uri is None or not isinstance(uri.value, str):
        return Started([], [], "sets no model")
    model = stored(manifests.file, uri, value_at(item.root, "spec.model.name"))
    sections = ((mapping_at(item.root, "spec"), ""), (mapping_at(item.root, "spec.prefill"), ", prefill"))
    servers = (
        _server(section, item, uri, model, label, manifests) for section, label in sections if section is not None
    )
    return combined(servers, "")


def _server(section: Node, item: Object, uri: Node, model: Word | None, label: str, manifests: Manifests) -> Started:
    """One server: the container's own command, else `vllm serve` with the parallel degrees and its arguments."""
    file, part = manifests.file, item.part + label
    layers = [section, *_bases(item.root, manifests, prefill=bool(label))]
    pods = [pod for layer in layers if (pod := mapping_at(layer, "template")) is not None]
    containers = [(pod, container) for pod in pods if (container := _main(pod)) is not None]
    resources, variables = Resources(), dict[str, Word]()
    _claimed(item.root, resources, file.path)
    for pod, container in containers:
        read_resources(pod, container, file, resources)
        variables = {**container_of(container, file).environment, **variables}
    parallelism = next((node for layer in layers if (node := layer.get("parallelism")) is not None), None)
    _nodes(section, parallelism, resources, file.path)
    if resources.gpus_per_node is None and any(container.find("resources.limits") for _, container in containers):
        return Started([], [], "requests no GPU")
    own = next((container for _, container in containers if container.get("command") or container.get("args")), None)
    if own is not None and own.get("command") is not None:
        started = jobs_of_container(container_of(own, file, variables), file, manifests.project, resources, part)
        return with_model(started, model, file)
    line = Assembly(file, uri, "vllm serve", variables)
    if model is not None:
        line.take([model])
    for key, flag in _DEGREES:
        line.say(flag, value_at(parallelism, key))
    expert = value_at(parallelism, "expert")
    if expert is not None and expert.value is True:
        line.switch("enable-expert-parallel")
    more = variables.get("VLLM_ADDITIONAL_ARGS")
    if more is not None and more.known:
        line.take(word for command in commands(Script(more.text, more.at)) for word in command.words)
    line.words(listed(value_at(own, "args")))
    images = [str(image.value) for _, container in containers if (image := container.get("image")) is not None]
    started = line.jobs(manifests.project, resources, part, versions(images[0] if images else _DEFAULTS))
    return started if images else started.each(ships=f"KServe's own {_DEFAULTS}")


def _nodes(section: Node, parallelism: Node | None, resources: Resources, path: str) -> None:
    """With a worker: as many pods as data parallel groups of `dataLocal` ranks, else as pipeline stages."""
    if section.get("worker") is None or parallelism is None:
        return
    numbers = {
        key: as_integer(node.value) for key in ("data", "dataLocal", "pipeline") if (node := parallelism.get(key))
    }
    data, local, stages = (numbers.get(key) for key in ("data", "dataLocal", "pipeline"))
    nodes = data // local if data and local and data % local == 0 else stages
    resources.state("nodes", nodes, path, "spec.parallelism", parallelism.span, "data / dataLocal, or pipeline")


def _main(pod: Node) -> Node | None:
    """The container that serves: the one called `main`, else the first."""
    found = mappings(pod.get("containers"))
    named = (node for node in found if (name := node.get("name")) is not None and name.value == "main")
    return next(named, found[0] if found else None)


def _claimed(root: Node, resources: Resources, path: str) -> None:
    """GPUs that annotations ask for by dynamic resource allocation, one unless they say how many."""
    notes = root.find("metadata.annotations")
    claim = notes.value.entry(f"{_CLAIM}-class") if notes is not None else None
    if notes is None or claim is None or not str(claim.value.value).startswith(("gpu.nvidia.com", "gpu.amd.com")):
        return
    count = notes.value.entry(f"{_CLAIM}-count") or claim
    number = as_integer(count.value.value) if count is not claim else 1
    resources.state("gpus_per_node", number, path, str(count.key.value), count.value.span)


def _bases(root: Node, manifests: Manifests, *, prefill: bool) -> Iterator[Node]:
    """The specs of the configs that the service refers to, the last first, as far as the file has them."""
    for reference in reversed(mappings(value_at(root, "spec.baseRefs"))):
        name = reference.get("name")
        base = manifests.named(("LLMInferenceServiceConfig",), name.value) if name is not None else None
        found = mapping_at(base.root, "spec.prefill" if prefill else "spec") if base is not None else None
        if found is not None:
            yield found
