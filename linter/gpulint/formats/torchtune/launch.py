"""Which recipe runs a torchtune config, and on how many GPUs: its `tune run` command, or that of the header comment."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.node import Entry, Node, Span
from ...upstream import torchtune
from ...upstream.behaviour import default_of
from ..core.arguments import Given
from ..core.backends.fsdp import FSDP, may_shard
from ..core.bindings.kinds import ANYTHING, FLAG, POSITIVE, Unsaid
from ..core.bindings.rows import LEAVE, Default, Derived, Fixed, Key, only
from ..core.coercion import as_integer
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.bindings.reader import Reader

_COMMAND = re.compile(r"\btune run\b(.*)")
_RECIPE = re.compile(r"(?:^|\s)((?:[\w.-]+/)*[a-z][\w]*)(?=\s+--config\b|\s*\\?$)")


class Recipe(NamedTuple):
    """A recipe's name ("" where nobody says it), the processes a node, the nodes, and where the command stands."""

    name: str = ""
    processes: int | None = None
    nodes: int | None = None
    place: Span | None = None
    given: Given | None = None

    @property
    def is_single(self) -> bool:
        """Whether it is one for a single device."""
        return "single_device" in self.name


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


def _set_gpus(reader: Reader) -> None:
    recipe = recipe_of(reader.document)
    stated = None
    count = (recipe.processes or 1) * (recipe.nodes or 1)
    if recipe.given is not None:
        stated = Stated(count, recipe.given.entry, recipe.given.key)
    elif recipe.place is not None and (recipe.processes or recipe.is_single):
        note = "the `tune run` command of the header comment"
        place = Node("scalar", None, recipe.place)
        stated = Stated(count, Entry(place, place), "tune run --nproc_per_node", note)
    sharded = "distributed" in recipe.name or bool(
        reader.keys.raw("fsdp_cpu_offload", "custom_sharded_layers", "tensor_parallel_dim")
    )
    set_hardware(reader, reader.project, stated, sharded=sharded and not recipe.is_single)
    if recipe.nodes and reader.project.nodes is None and recipe.nodes > 1:
        reader.derived("hardware.nodes", recipe.nodes, "--nnodes", "hardware.gpus")


def _no_fsdp(reader: Reader) -> Any:
    single = recipe_of(reader.document).is_single or (reader.job.hardware.gpus or 1) == 1
    return Derived(None, "one device") if single else LEAVE


def _version(reader: Reader) -> Default:
    release = reader.project.versions.get(torchtune.NAME)
    return Default(default_of(torchtune.DEFAULTS, release, "fsdp_version", 2), _SHARDED)


def _policy(reader: Reader) -> Derived:
    return Derived(reader.job.weights.dtype, "no mixed precision policy: the dtype of the weights")


def _set_replicas(reader: Reader) -> None:
    shard = reader.given(POSITIVE, "data_parallel_shard_dim")
    if shard and reader.value(POSITIVE, "data_parallel_replicate_dim", default=1) > 1:
        reader.set(f"{FSDP}shard_size", shard)


_SHARDED = "distributed recipes call fully_shard on every layer (training/_distributed.py)"

GPUS = (
    _set_gpus,
    Fixed("parallelism.fsdp", _no_fsdp),
    *only(
        may_shard,
        Key("parallelism.tensor", "tensor_parallel_dim", POSITIVE),
        Key("parallelism.context", "context_parallel_dim", POSITIVE),
        Fixed(f"{FSDP}version", _version),
        Fixed(f"{FSDP}wrap", Default("transformer", _SHARDED)),
        Fixed(f"{FSDP}cpu_ram_efficient_loading", Default(True, _SHARDED)),
        Fixed(f"{FSDP}sync_each_batch", Default(True, _SHARDED)),
        Fixed(f"{FSDP}mixed_precision.param_dtype", _policy),
        Fixed(f"{FSDP}mixed_precision.reduce_dtype", _policy),
        Key(
            f"{FSDP}outer", "custom_sharded_layers", ANYTHING,
            to=lambda layers, _: "separate" if layers else Unsaid.OTHER,
        ),
        Key(f"{FSDP}offload", "fsdp_cpu_offload", FLAG),
        Key(f"{FSDP}reshard_after_forward", "fsdp_reshard_after_forward", FLAG),
        Key(
            f"{FSDP}sharding", "fsdp_reshard_after_forward", FLAG, to={True: "full_shard", False: "shard_grad_op"},
        ),
        _set_replicas,
        Fixed(
            "weights.quantization.storage_dtype", Derived("bfloat16", "FSDP2 divides torchao's NF4", "model"),
            when=lambda job: job.weights.quantization is not None,
        ),
    ),
)  # fmt: skip
"""The GPUs, and how the distributed recipes shard over them: FSDP2, one unit a layer, beside tensor parallelism."""
