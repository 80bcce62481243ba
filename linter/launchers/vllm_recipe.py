"""Recipes of vllm-project/recipes (August 2026): a model, arguments of every run of it, and its variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hardware.catalogue import UnknownGpu
from ..hardware.catalogue import find as find_gpu
from .flags import overlaid
from .launch import Launch, Launcher, Resources, Started
from .manifest import flags_in, inside, renamed, scalar_at, stated, text

if TYPE_CHECKING:
    from ..formats.format import Project
    from ..hardware.gpu import Gpu
    from ..source.document import Document
    from ..source.node import Entry, Node

NAME = "vllm_recipe"
_OMNI = frozenset({"omni"})
LARGEST_NODE = 8


def recognise(document: Document) -> bool:
    """`model.model_id` with `variants`, or a strategy: `deploy_type` with `prefill` and `decode`."""
    root = document.root
    keys = set(root.keys())
    recipe = "variants" in keys and root.find("model.model_id") is not None
    return recipe or {"deploy_type", "parallel_flag"} <= keys or {"deploy_type", "prefill", "decode"} <= keys


def launches(document: Document, project: Project) -> Started:  # noqa: ARG001
    """A vLLM server for each variant, on as many GPUs of the first verified kind as hold its `vram_minimum_gb`."""
    root = document.root
    variants = root.get("variants")
    if variants is None or not variants.is_mapping:
        return Started([], [], "a strategy of several recipes: names no model")
    arguments = root.find("model.base_args")
    base = flags_in(document, arguments.value if arguments is not None else None, "vllm")
    if root.get("omni") is not None or _is_omni(root) or base.root.entry("omni") is not None:
        return Started([], [], "served by vLLM-Omni, whose pipelines gpulint does not estimate")
    found = [
        launch
        for variant in variants.entries()
        if variant.value.is_mapping
        for launch in [_launch(document, root, variant, base)]
        if launch is not None
    ]
    return Started(found, [], "" if found else "has no variant")


def _is_omni(root: Node) -> bool:
    tasks = root.find("meta.tasks")
    return tasks is not None and any(item.value in _OMNI for item in tasks.value.items())


def _launch(document: Document, root: Node, variant: Entry, base: Document) -> Launch | None:
    model = variant.value.find("model_id") or root.find("model.model_id")
    if model is None:
        return None
    resources = Resources()
    entries = [renamed(document, "model", model)]
    own = variant.value.find("extra_args")
    extra = flags_in(document, own.value if own is not None else None, "vllm")
    given = any(flags.root.entry("tensor-parallel-size") for flags in (base, extra))
    _hardware(document, root, variant.value, resources)
    if not given:
        entries += _tensor(document, variant.value, resources)
    config = inside(document, entries, variant.value)
    for flags in (base, extra):
        config = overlaid(config, flags)
    image = text(variant.value, "docker_image")
    from .images import versions

    return Launch(f"variant {variant.key.value}", "vllm", config, resources, versions=versions(image))


def _tensor(document: Document, variant: Node, resources: Resources) -> list[Entry]:
    """`tp`, else what whoever starts the recipe chooses: the GPUs that its memory needs."""
    tp = variant.entry("tp")
    if tp is not None:
        return [renamed(document, "tensor-parallel-size", tp)]
    memory = variant.entry("vram_minimum_gb")
    if memory is None or (resources.gpus_per_node or 1) == 1:
        return []
    return [stated(document, "tensor-parallel-size", scalar_at(document, "${TENSOR_PARALLEL_SIZE}", memory.value))]


def _hardware(document: Document, root: Node, variant: Node, resources: Resources) -> None:
    """The GPU, where a variant states `tp` and one kind; else a count: as many of the first verified kind as hold the
    memory. A recipe leaves the kind to its reader, so that the count alone says nothing against it."""
    found = [(gpu, node) for name, node in _kinds(root, variant) for gpu in [_gpu(name)] if gpu]
    if not found:
        return
    gpu, node = found[0]
    tp, memory = variant.entry("tp"), variant.entry("vram_minimum_gb")
    if tp is not None and len(found) == 1:
        resources.state("gpu", gpu.name, document.path, str(node.value), node.span, "the kind that it is verified on")
    if tp is not None and isinstance(tp.value.value, int):
        resources.state("gpus_per_node", tp.value.value, document.path, "tp", tp.value.span)
    elif memory is not None and isinstance(memory.value.value, (int, float)):
        count = 1
        while count < LARGEST_NODE and count * gpu.total < memory.value.value * 10**9:
            count *= 2
        note = f"{gpu.name} of one node that hold {memory.value.value} GB"
        resources.state("gpus_per_node", count, document.path, "vram_minimum_gb", memory.value.span, note)


def _kinds(root: Node, variant: Node) -> list[tuple[str, Node]]:
    supported = variant.find("supported_hardware")
    if supported is not None:
        return [(str(item.value), item) for item in supported.value.items()]
    verified = root.find("meta.hardware")
    if verified is None:
        return []
    return [(str(item.key.value), item.key) for item in verified.value.entries() if item.value.value == "verified"]


def _gpu(name: str) -> Gpu | None:
    kind = name.removeprefix("dgx_spark_").removeprefix("dgx_station_").replace("_", " ")
    try:
        return find_gpu(kind.partition(" 2x")[0].partition(" 4x")[0].partition(" 8x")[0])
    except UnknownGpu:
        return None


LAUNCHER = Launcher(
    NAME, "vLLM recipe", "vllm-project/recipes 2026-08", recognise, launches,
    "`meta.hardware` and `vram_minimum_gb`, or `tp`, of each variant",
)  # fmt: skip
