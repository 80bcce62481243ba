"""Recipes of vllm-project/recipes (August 2026): a model, arguments of every run of it, and its variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...repository.images import versions
from ..commands.flags import inside, overlaid
from ..kubernetes.container import flags_in
from ..kubernetes.manifest import renamed, scalar_at, stated
from ..launch import Launch, Launcher, Resources, Started
from ..values import text, value_at
from .vllm_recipe_hardware import extra_arguments, kind_of, strategy, tensor_parallel

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...hardware.gpu import Gpu
    from ...source.document import Document
    from ...source.node import Entry, Node
    from .vllm_recipe_hardware import Kind

NAME = "vllm_recipe"
_OMNI = frozenset({"omni"})


def recognise(document: Document) -> bool:
    """`model.model_id` with `variants`, or a strategy: `deploy_type` with `prefill` and `decode`."""
    root = document.root
    keys = set(root.keys())
    recipe = "variants" in keys and root.find("model.model_id") is not None
    return recipe or {"deploy_type", "parallel_flag"} <= keys or {"deploy_type", "prefill", "decode"} <= keys


def launches(document: Document, project: Project) -> Started:
    """A vLLM server for each variant, as the recipes' page starts it on the first verified kind of GPU, or on the one
    that is asked for.
    """
    root = document.root
    variants = root.get("variants")
    if variants is None or not variants.is_mapping:
        return Started([], [], "a strategy of several recipes, without a model")
    base = _flags(document, value_at(root, "model.base_args"))
    if root.get("omni") is not None or _is_omni(root) or base.root.entry("omni") is not None:
        return Started([], [], "served by vLLM-Omni, which gpulint does not estimate")
    found = [
        launch
        for variant in variants.entries()
        if variant.value.is_mapping
        for launch in [_launch(document, root, variant, base, project.gpu)]
        if launch is not None
    ]
    return Started(found, [], "" if found else "has no variant")


def _is_omni(root: Node) -> bool:
    tasks = value_at(root, "meta.tasks")
    return tasks is not None and any(item.value in _OMNI for item in tasks.items())


def _launch(document: Document, root: Node, variant: Entry, base: Document, asked: Gpu | None) -> Launch | None:
    """What the recipes' page makes of a variant: base arguments, the variant's, the split, overrides by hardware."""
    model = variant.value.find("model_id") or root.find("model.model_id")
    if model is None:
        return None
    resources = Resources()
    entries = [renamed(document, "model", model)]
    kind = kind_of(root, variant.value, asked)
    chosen = strategy(root, kind.nodes) if kind is not None else ""
    given = [base, _flags(document, variant.value.get("extra_args"))]
    if kind is not None and chosen.rpartition("_")[2] in _SPLIT:
        entries += _split(document, root, variant.value, kind, chosen, resources)
        given += [_flags(document, item) for item in extra_arguments(root, variant.value, kind, chosen)]
    elif not any(flags.root.entry("tensor-parallel-size") for flags in given):
        entries += _unsplit(document, variant.value)
    config = inside(document, entries, variant.value)
    for flags in given:
        config = overlaid(config, flags)
    image = text(variant.value, "docker_image")
    return Launch(f"variant {variant.key.value}", "vllm", config, resources, versions=versions(image))


_SPLIT = {"tp": "tensor-parallel-size", "tep": "tensor-parallel-size", "dep": "data-parallel-size"}
"""The flag that takes the GPUs, by what the strategy's name ends in (strategies/*.yaml `parallel_flag`)."""


def _flags(document: Document, node: Node | None) -> Document:
    return flags_in(document, node, "vllm")


def _split(document: Document, root: Node, variant: Node, kind: Kind, chosen: str, resources: Resources) -> list[Entry]:
    """The parallel sizes, and the GPUs that they take."""
    count, where = kind.node * kind.nodes, kind.where
    if chosen == "single_node_tp":
        found = tensor_parallel(root, variant, kind)
        count, where = found if found is not None else (count, where)
    resources.state("gpu", kind.gpu.name, document.path, kind.key, kind.where.span, "the GPU that it is verified on")
    note = f"of a node of {kind.node} {kind.gpu.name}, as the recipes' page splits {chosen}"
    resources.state("gpus_per_node", count // kind.nodes, document.path, "tp", where.span, note)
    if kind.nodes > 1:
        resources.state("nodes", kind.nodes, document.path, "vram_minimum_gb", where.span, "with enough memory")
    manner = chosen.rpartition("_")[2]
    entries = [stated(document, _SPLIT[manner], scalar_at(document, count, where))]
    if manner != "tp":
        entries.append(stated(document, "enable-expert-parallel", scalar_at(document, True, where)))
    return entries


def _unsplit(document: Document, variant: Node) -> list[Entry]:
    """The size is for whoever starts it to say: over nodes, or on a kind that is not known."""
    memory = variant.entry("vram_minimum_gb")
    if memory is None:
        return []
    return [stated(document, "tensor-parallel-size", scalar_at(document, "${TENSOR_PARALLEL_SIZE}", memory.value))]


LAUNCHER = Launcher(
    NAME, "vLLM recipe", "vllm-project/recipes 2026-08", recognise, launches,
    "`meta.hardware` and `vram_minimum_gb`, or `tp`, of each variant",
)  # fmt: skip
