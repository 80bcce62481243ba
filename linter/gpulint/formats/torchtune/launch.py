"""Which recipe runs a torchtune config, and on how many GPUs: its `tune run` command, or that of the header comment."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.node import Entry, Node, Span
from ...upstream import torchtune
from ...upstream.behaviour import default_of
from ..core.arguments import Given
from ..core.coercion import as_integer
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.native import NativeConfig

_COMMAND = re.compile(r"\btune run\b(.*)")
_RECIPE = re.compile(r"(?:^|\s)((?:[\w.-]+/)*[a-z][\w]*)(?=\s+--config\b|\s*\\?$)")


class Recipe(NamedTuple):
    """A recipe's name ("" where nobody says it), the processes a node, the nodes, and where the command stands."""

    name: str = ""
    processes: int | None = None
    nodes: int | None = None
    place: Span | None = None
    given: Given | None = None


def recipe_of(document: Document) -> Recipe:
    """The recipe of the command that starts the file, of its header comment, or of its file name."""
    root = document.root
    begun = _begun(root)
    if begun is not None:
        return begun
    for comment in document.comments:
        if comment.line >= root.span.line and root.entries():
            break
        match = _COMMAND.search(comment.text)
        if match is None:
            continue
        name = _RECIPE.search(match[1])
        count, nodes_ = _option(match[1], "nproc_per_node"), _option(match[1], "nnodes")
        span = Span(comment.line, 1, comment.line, 1, 0, 0)
        return Recipe(name[1] if name else "", count, nodes_, span)
    stem = os.path.basename(document.path).lower()
    return Recipe("lora_finetune_single_device" if "single_device" in stem and "lora" in stem else "")


def _begun(root: Node) -> Recipe | None:
    """The recipe of a `tune run` command whose flags lie over the file; None for the file alone.

    A flag takes the words behind it, so that the recipe's name may stand with the last option of torchrun.
    """
    given: dict[str, Any] = {}
    name, processes = "", None
    for option in ("nproc_per_node", "nnodes", "recipe", "standalone"):
        entry = root.entry(option) or root.entry(option.replace("_", "-"))
        if entry is None or entry.key.path is None:
            continue
        words = [item.value for item in entry.value.items()] if entry.value.is_sequence else [entry.value.value]
        given[option] = as_integer(words[0])
        name = next((word for word in reversed(words) if isinstance(word, str) and not word.isdigit()), name)
        if option == "nproc_per_node":
            processes = Given(given[option], entry, "nproc_per_node")
    if not given:
        return None
    return Recipe(name, given.get("nproc_per_node"), given.get("nnodes"), None, processes)


def _option(text: str, name: str) -> int | None:
    match = re.search(rf"--{name.replace('_', '[-_]')}[ =](\d{{1,6}})\b", text)
    return int(match[1]) if match else None


def set_gpus(config: NativeConfig, recipe: Recipe) -> None:
    """The GPUs, and how the distributed recipes shard over them: FSDP2, one unit a layer, beside tensor parallelism."""
    single = "single_device" in recipe.name
    stated = None
    count = (recipe.processes or 1) * (recipe.nodes or 1)
    if recipe.given is not None:
        stated = Stated(count, recipe.given.entry, recipe.given.key)
    elif recipe.place is not None and (recipe.processes or single):
        note = "the `tune run` command of the header comment"
        stated = Stated(count, Entry(_at(recipe.place), _at(recipe.place)), "tune run --nproc_per_node", note)
    sharded = "distributed" in recipe.name or any(
        config.keys.raw(name) for name in ("fsdp_cpu_offload", "custom_sharded_layers", "tensor_parallel_dim")
    )
    set_hardware(config.builder, config.project, stated, sharded=sharded and not single)
    if recipe.nodes and config.project.nodes is None and recipe.nodes > 1:
        config.builder.derived("hardware.nodes", recipe.nodes, "--nnodes", "hardware.gpus")
    gpus = config.builder.job.hardware.gpus or 1
    _set_sharding(config, single=single or gpus == 1)


def _at(place: Span) -> Node:
    return Node("scalar", None, place)


def _set_sharding(config: NativeConfig, *, single: bool) -> None:
    builder, keys = config.builder, config.keys
    if single:
        builder.derived("parallelism.fsdp", None, "one device")
        return
    tensor = keys.integer("tensor_parallel_dim", least=1)
    if tensor:
        config.put("parallelism.tensor", tensor)
    context = keys.integer("context_parallel_dim", least=1)
    if context:
        config.put("parallelism.context", context)
    shard = keys.integer("data_parallel_shard_dim", least=1)
    replicate = keys.integer("data_parallel_replicate_dim", least=1)
    fsdp = "parallelism.fsdp."
    note = "distributed recipes call fully_shard on every layer (training/_distributed.py)"
    version = default_of(torchtune.DEFAULTS, config.project.versions.get(torchtune.NAME), "fsdp_version", 2)
    values = {"version": version, "wrap": "transformer", "cpu_ram_efficient_loading": True, "sync_each_batch": True}
    for name, value in values.items():
        builder.default(fsdp + name, value, note)
    dtype = builder.job.weights.dtype
    builder.derived(f"{fsdp}mixed_precision.param_dtype", dtype, "no mixed precision policy: the dtype of the weights")
    builder.derived(f"{fsdp}mixed_precision.reduce_dtype", dtype, "no mixed precision policy: the dtype of the weights")
    layers = keys.raw("custom_sharded_layers")
    if layers and layers.value:
        config.put(f"{fsdp}outer", layers, "separate")
    offload = keys.flag("fsdp_cpu_offload")
    if offload:
        config.put(f"{fsdp}offload", offload)
    reshard = keys.flag("fsdp_reshard_after_forward")
    if reshard:
        config.put(f"{fsdp}reshard_after_forward", reshard)
        config.put(f"{fsdp}sharding", reshard, "full_shard" if reshard.value else "shard_grad_op")
    if shard and replicate and replicate.value > 1:
        config.put(f"{fsdp}shard_size", shard)
    if builder.job.weights.quantization is not None:
        builder.derived("weights.quantization.storage_dtype", "bfloat16", "FSDP2 divides torchao's NF4", "model")
