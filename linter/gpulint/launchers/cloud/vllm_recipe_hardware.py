"""What a recipe runs on: the kind of GPU, its node, and how the model is split over it.

The rules are those of the page that writes a recipe's command (vllm-project/recipes 8959cf64,
src/lib/command-synthesis.js `resolveSingleNodeTp`, `recommendStrategy`, `resolveCommand`; src/components/recipes/
CommandBuilder.jsx; taxonomy.yaml `hardware_profiles`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from ...hardware.catalogue import UnknownGpu
from ...hardware.catalogue import find as find_gpu
from ...units import GIB
from ..values import mapping_at, scalar, value_at

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...source.node import Node

_NODE, _TRAY = 8, 4
_TRAYS = ("gb200", "gb300")
_SINGLE = ("rtx", "gb10")
_FP4 = ("nvfp4", "fp4")


class Kind(NamedTuple):
    """A profile of the taxonomy: `key` as recipes spell it, `generation` for their overrides, GPUs of one node, and how
    many nodes have the memory that the variant needs.
    """

    key: str
    gpu: Gpu
    generation: str
    node: int
    where: Node
    nodes: int = 1


def kind_of(root: Node, variant: Node, asked: Gpu | None) -> Kind | None:
    """The kind that the reader asks for, else one that the recipe is verified on and that can run the variant.

    That is the first of which one node has `vram_minimum_gb`, else the first.
    """
    found = [kind for name, where in _names(root, variant) for kind in [_kind(name, where)] if kind is not None]
    if asked is not None:
        own = next((kind for kind in found if kind.gpu.name == asked.name), None)
        found = [own or Kind(_key(asked.name), asked, _generation(asked), _node(asked.name), variant)]
    allowed = "" if asked is not None else _allowed(variant)
    memory = variant.get("vram_minimum_gb")
    needed = memory.value if memory is not None and isinstance(memory.value, (int, float)) else 0
    fitting = [
        kind._replace(nodes=max(1, math.ceil(needed / (kind.node * nominal(kind.gpu)))))
        for kind in found
        if not allowed or kind.generation == allowed
    ]
    return min(fitting, key=lambda kind: min(kind.nodes, 2), default=None)


def strategy(root: Node, nodes: int) -> str:
    """The strategy that the page recommends on so many nodes; "" where the recipe offers none for several."""
    offered = root.get("compatible_strategies")
    names = [str(item.value) for item in offered.items()] if offered is not None else []
    default = scalar(root, "default_strategy")
    stated = default if default in names else ""
    if nodes > 1:
        wanted = (stated.replace("single_node_", "multi_node_"), *_SEVERAL_NODES)
        return next((name for name in wanted if name.startswith("multi_node_") and name in names), "")
    return stated or ("single_node_tp" if "single_node_tp" in names or not names else names[0])


_SEVERAL_NODES = ("multi_node_tp", "multi_node_dep", "multi_node_tep")
"""What is chosen on several nodes, first found."""


def tensor_parallel(root: Node, variant: Node, kind: Kind) -> tuple[int, Node] | None:
    """The ranks of `single_node_tp` and the value that decides them.

    The variant's `tp`, the recipe's for the strategy, one where a card holds `vram_minimum_gb`, else the whole node.
    """
    for holder, path in ((variant, "tp"), (root, "strategy_overrides.single_node_tp.tp")):
        stated = _keyed(value_at(holder, path), kind)
        if stated is not None and isinstance(stated.value, int) and stated.value > 0:
            return min(stated.value, kind.node), stated
    memory = variant.get("vram_minimum_gb")
    if memory is None or not isinstance(memory.value, (int, float)):
        return None
    return (1 if memory.value <= nominal(kind.gpu) else kind.node), memory


def extra_arguments(root: Node, variant: Node, kind: Kind, chosen: str) -> list[Node]:
    """The lists of arguments that hang on hardware and strategy, in the order in which they are appended."""
    found = [value_at(variant, f"hardware_overrides.{kind.key}"), value_at(root, f"strategy_overrides.{chosen}")]
    own = value_at(root, f"strategy_overrides.{chosen}.hardware_overrides")
    by_kind = _first(own, kind)
    if by_kind is not None:
        found.append(by_kind)
    else:
        found += [_first(value_at(holder, "hardware_overrides"), kind) for holder in (root, variant)]
    found.append(own.get(kind.key) if own is not None and own.is_mapping else None)
    lists = [node.get("extra_args") for node in found if node is not None and node.is_mapping]
    return [item for item in lists if item is not None]


def nominal(gpu: Gpu) -> float:
    """The memory by which the card is sold."""
    stated = re.search(r"-(\d+)gb$", gpu.name)
    return float(stated[1]) if stated else math.ceil(gpu.total / GIB)


def _first(overrides: Node | None, kind: Kind) -> Node | None:
    """The overrides of the generation, else those of every NVIDIA card."""
    if overrides is None or not overrides.is_mapping:
        return None
    return overrides.get(kind.generation) or overrides.get("nvidia")


def _keyed(value: Node | None, kind: Kind) -> Node | None:
    """A value, or the first of a mapping by GPU, generation, brand and `default`."""
    if value is None or not value.is_mapping:
        return value
    names = (kind.key, kind.generation, "nvidia", "default")
    return next((found for name in names for found in [value.get(name)] if found is not None), None)


def _names(root: Node, variant: Node) -> list[tuple[str, Node]]:
    supported = variant.get("supported_hardware")
    if supported is not None and supported.is_sequence:
        return [(str(item.value), item) for item in supported.items()]
    known = value_at(root, "meta.hardware")
    entries = known.entries() if known is not None else []
    return [(str(item.key.value), item.key) for item in entries if item.value.value == "verified"]


def _kind(name: str, where: Node) -> Kind | None:
    words = name.removeprefix("dgx_spark_").removeprefix("dgx_station_").replace("_", " ")
    bare, _, count = words.rpartition(" ")
    several = int(count[:-1]) if bare and re.fullmatch(r"\dx", count) else None
    try:
        gpu = find_gpu(bare if several else words)
    except UnknownGpu:
        return None
    node = several or (1 if name.startswith("dgx_") else _node(gpu.name))
    return Kind(name, gpu, _generation(gpu), node, where)


def _key(name: str) -> str:
    return re.sub(r"-\d+gb$", "", name).replace("-", "_")


def _node(name: str) -> int:
    if name.startswith(_TRAYS):
        return _TRAY
    return 1 if name.startswith(_SINGLE) else _NODE


def _generation(gpu: Gpu) -> str:
    capability = gpu.compute_capability or 0.0
    return "blackwell" if capability >= 10 else "hopper" if capability == 9.0 else "ada" if capability == 8.9 else ""


def _allowed(variant: Node) -> str:
    """The only generation that runs the variant: FP4 needs Blackwell unless the variant says otherwise."""
    if mapping_at(variant, "precision_hardware") is not None:
        return scalar(variant, "precision_hardware.generation")
    return "blackwell" if scalar(variant, "precision").lower() in _FP4 else ""
