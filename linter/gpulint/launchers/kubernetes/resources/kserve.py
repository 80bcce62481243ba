"""KServe 0.20: InferenceService and its runtimes (`serving.kserve.io`); LLMInferenceService is in `kserve_llm`.

The storage initializer puts the files of `storageUri` at /mnt/models; that is the model of whatever is given the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....formats.core.coercion import as_integer
from ....repository.images import versions
from ...commands.images import program_of
from ...commands.jobs import jobs_of_commands
from ...launch import Launcher, Resources, Started
from ...shell.shell import Command, Word
from ...values import mapping_at, mappings, value_at
from ..container import written
from ..manifests import launches, recogniser
from ..pod import container_of, jobs_of_pod, read_resources
from ..pod_settings import tell_devices
from .kserve_llm import read_llm
from .kserve_model import MOUNT, stored, with_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....source.document import Document
    from ....source.node import Node
    from ..manifests import Manifests, Object

NAME = "kserve"
_RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")
_FORMATS = {
    "huggingface": ("python3", "-m", "huggingfaceserver"),
    "vllm": ("python3", "-m", "vllm.entrypoints.openai.api_server", f"--model={MOUNT}"),
}
"""Model format -> what the runtime that KServe ships for it starts (config/runtimes)."""

_OWN = frozenset(
    {
        "model_name", "model_dir", "model_revision", "tokenizer_revision", "max_length", "disable_lower_case",
        "disable_special_tokens", "tensor_input_names", "backend", "return_token_type_ids", "return_offsets_mapping",
        "return_probabilities", "return_raw_logits", "task", "disable_log_requests", "max_log_len", "http_port",
        "grpc_port", "workers", "max_threads", "max_asyncio_workers", "enable_grpc", "enable_docs_url",
        "enable_latency_logging", "configure_logging", "log_config_file", "access_log_format", "predictor_host",
        "predictor_protocol", "predictor_use_ssl", "predictor_request_timeout_seconds",
    }
)  # fmt: skip
"""Flags of huggingfaceserver and of KServe's model server; all others are vLLM's (python/huggingfaceserver, 0.20)."""

_SWITCHES = frozenset(
    {
        "disable_lower_case", "disable_special_tokens", "return_token_type_ids", "return_offsets_mapping",
        "return_probabilities", "return_raw_logits", "disable_log_requests",
    }
)  # fmt: skip


class _Server(NamedTuple):
    """What a predictor starts: a service's own words behind those of its runtime."""

    command: Sequence[Word]
    image: str
    variables: dict[str, Word]
    resources: Resources


def read(item: Object, manifests: Manifests) -> Started:
    """The server of a service; a runtime by itself names no model."""
    if item.kind.startswith("LLM"):
        return read_llm(item, manifests)
    if item.kind in _RUNTIMES:
        return _runtime(item, manifests)
    predictor = mapping_at(item.root, "spec.predictor")
    if predictor is None:
        return Started([], [], "a service without a predictor")
    model = next((node for key in ("model", *_FORMATS) if (node := predictor.get(key)) is not None), None)
    if model is not None and model.is_mapping:
        return _service(item, predictor, model, manifests)
    if not mappings(predictor.get("containers")):
        kinds = [str(key) for key in predictor.keys() if predictor.find(f"{key}.storageUri")]  # noqa: SIM118
        return Started([], [], f"serves a {kinds[0]} model" if kinds else "a predictor without a model")
    return with_model(jobs_of_pod(predictor, manifests.file, manifests.project, item.part), None, manifests.file)


def _runtime(item: Object, manifests: Manifests) -> Started:
    if manifests.used_by("InferenceService", "spec.predictor.model.runtime", item.name):
        return Started([], [])
    spec = mapping_at(item.root, "spec")
    if spec is None:
        return Started([], [], "a runtime without containers")
    return with_model(jobs_of_pod(spec, manifests.file, manifests.project, item.part), None, manifests.file)


def _service(item: Object, predictor: Node, model: Node, manifests: Manifests) -> Started:
    file = manifests.file
    kind = model.find("modelFormat.name")
    name = str(kind.value.value).lower() if kind is not None else "huggingface"
    given = model.get("runtime")
    runtime = manifests.named(_RUNTIMES, given.value) if given is not None else None
    if runtime is None and name not in _FORMATS:
        return Started([], [], f"serves a {name} model")
    server = _server(predictor, model, runtime, name, file)
    if server.resources.gpus_per_node is None and model.find("resources.limits") is not None:
        if not _wants_gpus(server.command):
            return Started([], [], "requests no GPU")
        tell_devices(predictor, model, file, server.resources)
    storage = stored(file, model.get("storageUri") or value_at(model, "storage.storageUri"))
    _workers(predictor, server.resources, file)
    words = list(server.command)
    if not words:
        return Started([], [], "its command is in the image")
    if [word.text for word in words[:3]] == list(_FORMATS["huggingface"]):
        backend = _value(words, "backend")
        if backend == "huggingface":
            return Started([], [], "serves with Transformers (--backend huggingface)")
        words = _as_vllm(words)
    words += _worker_flags(predictor, file)
    command = Command(tuple(words), server.variables)
    known = versions(server.image)
    started = jobs_of_commands([command], file, manifests.project, server.resources, item.part, known)
    return with_model(started, storage, file)


def _wants_gpus(words: Sequence[Word]) -> bool:
    """Whether a server is started that runs on GPUs alone: by its backend, or over more than one."""
    degrees = (_value(words, name) for name in ("tensor_parallel_size", "pipeline_parallel_size"))
    return _value(words, "backend") == "vllm" or any((as_integer(degree) or 1) > 1 for degree in degrees)


def _server(predictor: Node, model: Node, runtime: Object | None, name: str, file: Document) -> _Server:
    """The runtime's container with the service's command over it and its arguments behind."""
    resources = Resources()
    read_resources(predictor, model, file, resources)
    start = model.span.start
    image, variables = "", dict[str, Word]()
    command = [Word(text, (start,) * len(text)) for text in _FORMATS.get(name, ())]
    spec = runtime.root.get("spec") if runtime is not None else None
    base = next(iter(mappings(value_at(spec, "containers"))), None)
    if spec is not None and base is not None:
        container = container_of(base, file)
        image, variables = container.image, dict(container.environment)
        program = [written(file, node, variables) for node in container.command or ()]
        arguments = [written(file, node, variables) for node in container.arguments]
        front = program_of(container.image, arguments)
        command = [*(program or [Word(text, (start,) * len(text)) for text in front] or command), *arguments]
        read_resources(spec, base, file, resources)
    own = container_of(model, file, variables)
    if own.command:
        command = [written(file, node, own.environment) for node in own.command]
    command += [written(file, node, own.environment) for node in own.arguments]
    return _Server(command, own.image or image, dict(own.environment), resources)


def _as_vllm(words: list[Word]) -> list[Word]:
    """The flags of huggingfaceserver that are vLLM's, for the model of `--model_id`, else of its folder."""
    rest, here = list[Word](), 3
    model = False
    while here < len(words):
        word = words[here]
        here += 1
        name = word.text[2:].partition("=")[0].replace("-", "_") if word.text.startswith("--") else ""
        if name == "model_id":
            model = True
            size = 2 + len(name)
            rest.append(word._replace(text="--model" + word.text[size:], at=word.at[:7] + word.at[size:]))
        elif name in _OWN:
            valued = "=" not in word.text and name not in _SWITCHES
            here += 1 if valued and here < len(words) and not words[here].text.startswith("--") else 0
        else:
            rest.append(word)
    at = words[0].at[:1]
    stored = () if model else (f"--model={MOUNT}",)
    head = [Word(text, at * len(text)) for text in (*_FORMATS["huggingface"], *stored)]
    return head + rest


def _value(words: Sequence[Word], flag: str) -> str:
    for word, after in zip(words, [*words[1:], None], strict=True):
        name, equals, value = word.text.partition("=")
        if name.replace("-", "_") == f"__{flag}":
            return value if equals else after.text if after is not None else ""
    return ""


def _workers(predictor: Node, resources: Resources, file: Document) -> None:
    """`workerSpec`: as many nodes as pipeline stages, `tensorParallelSize` GPUs in each."""
    for name, key in (("nodes", "pipelineParallelSize"), ("gpus_per_node", "tensorParallelSize")):
        resources.read(name, predictor.find(f"workerSpec.{key}"), file.path, f"workerSpec.{key}")


def _worker_flags(predictor: Node, file: Document) -> list[Word]:
    found = list[Word]()
    for key, flag in (("tensorParallelSize", "tensor"), ("pipelineParallelSize", "pipeline")):
        node = value_at(predictor, f"workerSpec.{key}")
        if node is not None and node.is_scalar:
            name = f"--{flag}-parallel-size"
            found += [Word(name, (node.span.start,) * len(name)), written(file, node, {})]
    return found


LAUNCHER = Launcher(
    NAME, "KServe service", "KServe 0.20", recogniser(NAME), launches, "limits of the predictor, `workerSpec`"
)
