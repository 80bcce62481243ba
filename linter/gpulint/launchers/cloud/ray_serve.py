"""Ray Serve LLM: `llm_configs` (ray 2.44 on), the models of ray-llm before it, and batch configs of the same engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.format import Problem
from ...source.document import SourceError
from ..commands.flags import inside
from ..kubernetes.manifest import accelerator, renamed
from ..launch import Launch, Launcher, Resources, Started
from ..values import listed, mappings, text, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Entry, Node

NAME = "ray_serve"
MAX_MODELS = 20
_RESOURCE = re.compile(r"accelerator_type[_:]([a-z0-9_]+?)(?:_(?:aws|gcp|azure))?$", re.IGNORECASE)


def recognise(document: Document) -> bool:
    """Serve applications with models, one model (`engine_config`, `model_loading_config`), or `llm_engine`."""
    root = document.root
    if any(root.get(key) is not None for key in ("llm_configs", "model_loading_config", "llm_engine")):
        return True
    if root.get("engine_config") is not None and (root.get("deployment_config") or root.get("scaling_config")):
        return True
    return any(app.get("import_path") is not None for app in mappings(root.get("applications")))


def launches(document: Document, project: Project) -> Started:
    """An engine for each model; one that an application names as a file is read there."""
    found: list[Launch] = []
    problems: list[Problem] = []
    reasons: list[str] = []
    for model, file in _models(document, project, problems, reasons):
        launch, reason = _launch(model, file)
        if launch is not None:
            found.append(launch if file is document else launch._replace(files={"launcher": document}))
        else:
            reasons.append(reason)
    return Started(found, problems, "" if found else next(iter(reasons), "serves no model that gpulint knows"))


def _models(
    document: Document, project: Project, problems: list[Problem], reasons: list[str]
) -> Iterator[tuple[Node, Document]]:
    root = document.root
    if root.get("applications") is None and root.get("llm_configs") is None:
        yield root, document
        return
    for arguments in (root, *(app.get("args") for app in mappings(root.get("applications")))):
        if arguments is None or not arguments.is_mapping:
            continue
        if arguments.get("embedding_models") is not None:
            reasons.append("serves embedding models, which gpulint does not estimate")
        for key in ("llm_configs", "models", "trtllm_models", "vllm_base_models"):
            for item in listed(arguments.get(key))[:MAX_MODELS]:
                if item.is_mapping:
                    yield item, document
                elif isinstance(item.value, str):
                    named = _named(item, document, project, problems, reasons)
                    if named is not None:
                        yield named.root, named


def _named(
    item: Node, document: Document, project: Project, problems: list[Problem], reasons: list[str]
) -> Document | None:
    """The file that an application names as a model."""
    path, reason = str(item.value), "not found"
    try:
        found = project.open(path, document.path)
    except SourceError as error:
        found, reason = None, str(error)
    if found is None or not found.root.is_mapping:
        values = {"reference": path, "path": path, "reason": reason, "assumption": "empty"}
        problems.append(Problem("unresolved-reference", "models", item.span, values))
        reasons.append(f"its model {path} is {reason}")
        return None
    return found


def _launch(model: Node, document: Document) -> tuple[Launch | None, str]:
    engine = model.get("engine_config")
    resources = Resources()
    if engine is not None and engine.is_mapping:
        if text(engine, "type") not in ("", "VLLMEngine"):
            return None, f"its engine was built elsewhere ({text(engine, 'type')}), so its sizes are unknown"
        entries, reason = _former(model, engine, document, resources)
        if reason:
            return None, reason
    else:
        if text(model, "llm_engine") not in ("", "vllm", "vLLM"):
            return None, f"its engine {text(model, 'llm_engine')} is unknown to gpulint"
        entries = _present(model, document, resources)
    name = text(model, "model_loading_config.model_id") or text(engine, "model_id")
    part = f"model {name}" if name else "model"
    return Launch(part, "vllm", inside(document, entries, model), resources), ""


def _present(model: Node, document: Document, resources: Resources) -> list[Entry]:
    """`model_loading_config`, `engine_kwargs` and `accelerator_type`."""
    source = model.find("model_loading_config.model_source") or model.find("model_loading_config.model_id")
    entries = [renamed(document, "model", source)] if source is not None and source.value.is_scalar else []
    entries += _arguments(model)
    kind = model.entry("accelerator_type")
    count = resources.copy()
    accelerator(kind, document, count, {})
    if kind is not None and count.gpu:
        resources.state("gpu", count.gpu, document.path, "accelerator_type", kind.value.span)
    return entries


def _former(model: Node, engine: Node, document: Document, resources: Resources) -> tuple[list[Entry], str]:
    """`engine_config` and `scaling_config` of ray-llm: one worker a tensor parallel rank."""
    workers, each = model.find("scaling_config.num_workers"), model.find("scaling_config.num_gpus_per_worker")
    if each is not None and not as_integer(each.value.value):
        return [], "requests no GPU (`num_gpus_per_worker`)"
    source = engine.entry("hf_model_id") or engine.entry("model_id")
    entries = [renamed(document, "model", source)] if source is not None else []
    longest = engine.entry("max_total_tokens")
    if longest is not None:
        entries.append(renamed(document, "max_model_len", longest))
    if workers is not None:
        entries.append(renamed(document, "tensor_parallel_size", workers))
        resources.read("gpus_per_node", workers, document.path, "num_workers")
    asked = value_at(model, "scaling_config.resources_per_worker")
    for entry in asked.entries() if asked is not None else ():
        match = _RESOURCE.match(str(entry.key.value))
        if match is not None:
            kind = match[1].replace("_", "-").replace("80g", "80gb")
            resources.state("gpu", kind, document.path, str(entry.key.value), entry.key.span)
    return [*entries, *_arguments(engine)], ""


def _arguments(node: Node) -> list[Entry]:
    arguments = node.get("engine_kwargs")
    return list(arguments.entries()) if arguments is not None else []


LAUNCHER = Launcher(
    NAME, "Ray Serve LLM", "ray 2.52, ray-llm 0.5", recognise, launches,
    "`accelerator_type`; `scaling_config` of ray-llm",
)  # fmt: skip
