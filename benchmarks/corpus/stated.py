"""The hardware that people state of a published config, as far as it is clear.

What a config or launcher says in keys of its own is read by gpulint. An index entry holds what else was found: words of
a comment, of the path, the `--nproc_per_node` of the command that starts it. Left out is what can mean several
machines: recipes that list variants, a GPU sold in several sizes, GPUs of each of an unknown number of nodes.
"""

from __future__ import annotations

import json
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.hardware.catalogue import UnknownGpu, ambiguity, find
from gpulint.settings.layers import Layers
from gpulint.settings.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from gpulint.hardware.gpu import Gpu

VARIANTS = frozenset({"vllm_recipe", "skypilot", "vllm_production_stack", "helm_values", "kserve"})
"""Labels of files whose prose is about several variants, or whose keys already say what runs."""

_COUNTED = re.compile(r"\b(?P<count>\d+)\s*[x×]?\s*(?:NVIDIA )?(?:RTX|GB|GH|[AHBLVT])(?: ?\d| (?!on))", re.IGNORECASE)
_OVER_NODES = re.compile(r"(?P<count>\d+)\s*[x×][^()]*\((?P<nodes>\d+) nodes\)")
_NODES = re.compile(r"(?P<nodes>\d+)\s*nodes\s*[x×]\s*(?P<each>\d+)", re.IGNORECASE)
_NAME = re.compile(
    r"(?<![A-WYZa-wyz\d])(?:RTX PRO 6000|RTX 4090|(?:GB|GH|A|H|B|L|V|T)\d{1,4}S?(?:[ -]\d{2,3}GB)?)(?!\w|\.\w)"
)
_PER_NODE = re.compile(r"nproc[_-]per[_-]node[ =](\d+)")
_SEVERAL_NODES = re.compile(
    r"nnodes[ =:]+(?!1\b)\S|num[_-]nodes[ =:]+(?!1\b)\d|\b\d+[ -]nodes\b|multi-?node", re.IGNORECASE
)


class Stated(NamedTuple):
    """A GPU of the catalogue, GPUs in all, machines; None is not said."""

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None


def stated(entry: dict[str, Any], text: str) -> Stated:
    """What an entry of the index says of a file with this text."""
    said = entry["hardware"]
    if entry["format"] in VARIANTS:
        return Stated()
    words = said.get("stated") or said.get("comment", "")
    hint = "" if "gh200" in entry["path"] else str(said.get("path_hint", ""))
    gpu = _gpu(words) or _gpu(hint.upper().replace("_", "-"))
    gpus, nodes = _count(words)
    each = {int(number) for number in _PER_NODE.findall(text)}
    if gpus is None and len(each) == 1 and not _SEVERAL_NODES.search(text):
        gpus, nodes = each.pop(), 1
    return Stated(gpu.name if gpu is not None else None, gpus, nodes)


def _gpu(words: str) -> Gpu | None:
    """The one GPU that words name, where its size is clear."""
    names = {*_NAME.findall(words)}
    if len(names) != 1 or re.search(r"\+ GPUs|or equivalent|GiB memory", words):
        return None
    try:
        gpu = find(names.copy().pop())
    except UnknownGpu:
        return None
    return None if ambiguity(names.pop()) else gpu


def _count(words: str) -> tuple[int | None, int | None]:
    """GPUs in all and machines, where words say both, or that it is one machine, or a number of GPUs."""
    grid = _NODES.search(words)
    if grid:
        nodes, each = int(grid["nodes"]), int(grid["each"])
        return nodes * each, nodes
    over = _OVER_NODES.search(words)
    if over:
        return int(over["count"]), int(over["nodes"])
    if re.search(r"\bnodes\b|machines|each\b|/node", words) or len(_NAME.findall(words)) != 1:
        return None, None
    found = _COUNTED.search(words)
    count = int(found["count"]) if found else None
    return count, None if count is None or count > 8 else 1


class StatedLayers(Layers):
    """Settings of a run over a corpus with an index: of each file the hardware stated of it, lower than its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = os.path.realpath(folder)

    @cached_property
    def entries(self) -> dict[str, dict[str, Any]]:
        """The entries of the index, by path."""
        with open(os.path.join(self.folder, "INDEX.json"), encoding="utf-8") as file:
            return {entry["path"]: entry for entry in json.load(file)}

    def of(self, path: str) -> Settings:
        """What counts for a file: its repository as the root, and the hardware stated of it."""
        inside = os.path.relpath(os.path.realpath(path), self.folder)
        entry = self.entries.get(inside)
        if entry is None:
            return Settings(root=self.folder)
        root = os.path.join(self.folder, inside.split(os.sep)[0])
        if not entry["hardware"]:
            return Settings(root=root)
        with open(path, encoding="utf-8", errors="replace") as file:
            said = stated(entry, file.read(1 << 20))
        return Settings(root=root, configured_gpu=said.gpu, configured_gpus=said.gpus, configured_nodes=said.nodes)
