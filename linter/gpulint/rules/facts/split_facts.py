"""Facts about sizes that have to divide: what tensor and pipeline parallelism split, by the program that does it."""

from __future__ import annotations

from functools import cache
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from ...upstream.serving import vllm
from ..expression import UNKNOWN
from .facts import Facts, fact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...job.job import Quantization
    from ...models.model import Model, Tensor
    from ...source.node import Node

MOST_LISTED = 1024
"""The largest tensor parallel size that is offered."""


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "splits.json")


def _program(facts: Facts) -> dict[str, Any]:
    """What the program that splits the model refuses: the engine of a server, the framework or format of a trainer."""
    job, programs = facts.job, _table()["programs"]
    if job.kind == "inference":
        found = programs.get(job.inference.engine if job.inference is not None else "")
        return found or (programs["job"] if facts.reading.format == "job" else {})
    found = programs.get(job.framework or "") or programs.get(facts.reading.format)
    return found or {}


class _Split(NamedTuple):
    """A number that ranks share: `size` features or heads over `ranks`, in multiples of `step`."""

    size: int
    ranks: int
    step: int = 1
    copied: bool = False

    def fits(self, ranks: int) -> bool:
        """Whether each of so many ranks has a whole share."""
        return self.size % (ranks * self.step) == 0 or (self.copied and ranks % self.size == 0)


def _attention_ranks(facts: Facts) -> int:
    plan = facts.job.parallelism
    return plan.attention_tensor or plan.tensor


def _heads(facts: Facts) -> _Split | None:
    model = facts.model
    if model is None or not model.shape.heads or "heads" not in _program(facts):
        return None
    return _Split(model.shape.heads, _attention_ranks(facts))


def _kv_heads(facts: Facts) -> _Split | None:
    model, how = facts.model, _program(facts).get("kv_heads")
    if model is None or how is None or model.shape.kv_lora_rank or not model.shape.kv_heads:
        return None
    return _Split(model.shape.kv_heads, _attention_ranks(facts), copied=how == "copied")


def _mlps(facts: Facts) -> Iterator[_Split]:
    """Widths of the MLPs: of dense layers, of shared experts, and of experts over the ranks that share one.

    Stated sizes of a mixture of experts are read as a model that has as many parameters, not as many features.
    """
    model = facts.model
    if model is None or not model.exact or "mlp" not in _program(facts):
        return
    if model.shape.experts and isinstance(facts.job.model, dict):
        return
    widths = {tensor.shape[-1] for tensor in model.tensors if tensor.role in ("down", "shared_down") and tensor.linear}
    for width in sorted(widths):
        yield _Split(width, facts.job.parallelism.tensor)
    if model.shape.moe_intermediate and model.shape.experts:
        yield _Split(model.shape.moe_intermediate, _expert_ranks(facts))


def _expert_ranks(facts: Facts) -> int:
    from ...estimator.states.tensor_parallel import expert_tensor

    return expert_tensor(facts.job)


class _Block(NamedTuple):
    """Input features of a matrix that ranks share, and how many of them have one scale."""

    split: _Split
    module: str


def _blocks(facts: Facts) -> Iterator[_Block]:
    """The matrices whose input features are divided over ranks and quantized in blocks or groups."""
    model = facts.model
    if model is None or not model.exact or facts.job.kind != "inference":
        return
    stored = _stored(facts, model)
    if stored is None or not stored[1]:
        return
    quantization, size = stored
    roles = _program(facts).get("blocks", {}).get(quantization.method, ())
    for tensor in model.tensors:
        if tensor.role not in roles or _is_left(tensor, quantization):
            continue
        split = _Split(_inputs(tensor, model), _ranks(tensor, facts), size)
        if not (tensor.role == "expert_down" and _is_refined(split, facts, model)):
            yield _Block(split, tensor.leaf)


def _is_refined(split: _Split, facts: Facts, model: Model) -> bool:
    """Whether the engine cuts the blocks of experts itself, into ones that divide what a rank has of them."""
    job = facts.job
    if job.inference is None or job.inference.engine != vllm.NAME or split.fits(split.ranks):
        return False
    block = gcd(split.step, split.size // split.ranks, model.shape.hidden)
    return vllm.REFINES_EXPERT_BLOCKS.at(job.versions.get(vllm.NAME)) and block >= vllm.LEAST_EXPERT_BLOCK


def _inputs(tensor: Tensor, model: Model) -> int:
    return model.shape.moe_intermediate if tensor.role == "expert_down" else tensor.shape[-1]


def _ranks(tensor: Tensor, facts: Facts) -> int:
    if tensor.role == "expert_down":
        return _expert_ranks(facts)
    return _attention_ranks(facts) if tensor.role == "o" else facts.job.parallelism.tensor


def _is_left(tensor: Tensor, quantization: Quantization) -> bool:
    from ...estimator.states.skipping import skipped_layers

    return skipped_layers(tensor, quantization) is True


def _stored(facts: Facts, model: Model) -> tuple[Quantization, int] | None:
    """How the checkpoint is stored and the features that have one scale; None where that is not known or open.

    Groups that are ordered by activation are not those of neighbouring features, and are left out.
    """
    from ...estimator.states.checkpoint import named_quantization, stated_quantization, stored_quantization

    config = stated_quantization(model)
    if facts.job.weights.stored is not None or config is None:
        found = facts.job.weights.stored or named_quantization(facts.job, model)
        if found is None:
            return None
        owner, publishers = model.id.lower().rpartition("/")[0], _table()["publishers"]
        if found.method == "fp8" and owner in publishers["blocks"]:
            return _with_method(found, "finegrained-fp8"), USUAL_BLOCK
        if found.method == "gptq" and owner not in publishers["unordered_groups"]:
            return None
        if found.method not in ("awq", "gptq", "finegrained-fp8", "pack-quantized"):
            return None
        return found, found.group_size or USUAL_BLOCK
    found = stored_quantization(model)
    if found is None:
        return None
    block = config.get("weight_block_size")
    if isinstance(block, list) and len(block) == 2 and isinstance(block[1], int):
        return found, block[1]
    if config.get("desc_act") or '"actorder": "group"' in str(config).replace("'", '"'):
        return None
    return found, max(0, found.group_size or 0)


USUAL_BLOCK = 128
"""Features of a block or group where only the checkpoint's name tells that it has them."""


def _with_method(found: Quantization, method: str) -> Quantization:
    from dataclasses import replace

    return replace(found, method=method)


def _cut(facts: Facts, split: _Split | None) -> Any:
    """The size that the ranks cannot share; null where they can, unknown where nothing is known of it."""
    if split is None or not _is_known(facts):
        return UNKNOWN
    return None if split.ranks <= 1 or split.fits(split.ranks) else split.size


def _is_known(facts: Facts) -> bool:
    return "parallelism.tensor" not in facts.job.unstated and facts.job.parallelism.tensor < 1 << 31


@fact("splits.heads", type="whole number")
def _cut_heads(facts: Facts) -> Any:
    """Attention heads, if the ranks of tensor parallelism cannot have the same number of them; else null."""
    return _cut(facts, _heads(facts))


@fact("splits.kv_heads", type="whole number")
def _cut_kv_heads(facts: Facts) -> Any:
    """Key/value heads, if the ranks can neither share them evenly nor, where the program does so, copy them; else
    null."""
    return _cut(facts, _kv_heads(facts))


@fact("splits.kv_heads_copied")
def _copies(facts: Facts) -> Any:
    """Whether the program copies key/value heads where there are more ranks than heads."""
    how = _program(facts).get("kv_heads")
    return UNKNOWN if how is None else how == "copied"


@fact("splits.mlp", type="whole number")
def _cut_mlp(facts: Facts) -> Any:
    """Width of the MLP, the shared or the routed experts, if it is not a multiple of the ranks that share it; else
    null."""
    cuts = [(split, _cut(facts, split)) for split in _mlps(facts)]
    return next((size for _, size in cuts if isinstance(size, int)), None if cuts else UNKNOWN)


@fact("splits.mlp_ranks", type="whole number")
def _mlp_ranks(facts: Facts) -> Any:
    """The ranks that would share `splits.mlp`."""
    return next((split.ranks for split in _mlps(facts) if isinstance(_cut(facts, split), int)), UNKNOWN)


def _first_block(facts: Facts) -> _Block | None:
    return next((block for block in _blocks(facts) if isinstance(_cut(facts, block.split), int)), None)


def _block_fact(name: str, type_: str, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        block = _first_block(facts)
        if block is None:
            return UNKNOWN
        split = block.split
        return {
            "module": block.module, "size": split.size, "ranks": split.ranks, "block": split.step,
            "share": split.size // split.ranks,
        }[name]  # fmt: skip

    derive.__doc__ = meaning
    fact(f"splits.block.{name}", type=type_)(derive)


for _name, _type, _meaning in (
    ("module", "text", "The matrix in which a rank has no whole number of quantization blocks or groups."),
    ("size", "whole number", "Input features of that matrix."),
    ("ranks", "whole number", "The ranks that share them."),
    ("share", "whole number", "Its input features on a rank."),
    ("block", "whole number", "Features of a quantization block or group of that matrix."),
):
    _block_fact(_name, _type, _meaning)


@fact("splits.block.of_experts")
def _of_experts(facts: Facts) -> Any:
    """Whether only experts have cut blocks, so that expert parallelism, which keeps experts whole, is a remedy."""
    cut = [block for block in _blocks(facts) if isinstance(_cut(facts, block.split), int)]
    experts = facts.model.shape.moe_intermediate if facts.model is not None else 0
    return bool(cut) and all(block.split.size == experts and block.split.ranks == _expert_ranks(facts) for block in cut)


def _sizes(facts: Facts) -> list[int]:
    """Tensor parallel sizes that divide all that is known to have to divide, up to the GPUs that are stated."""
    splits = [split for split in (_heads(facts), _kv_heads(facts)) if split is not None]
    heads, tensor = [split.size for split in splits], facts.job.parallelism.tensor
    splits += [*_mlps(facts), *(block.split for block in _blocks(facts))]
    limit = min([MOST_LISTED, *heads[:1]])
    if not facts.get("gpus.assumed"):
        limit = min(limit, facts.job.world_size)
    return [
        size
        for size in range(1, limit + 1)
        if all(split.fits(max(1, size * split.ranks // tensor)) for split in splits)
    ]


@fact("splits.sizes", type="list of text")
def _listed(facts: Facts) -> Any:
    """Tensor parallel sizes that heads, key/value heads, MLP widths and quantization blocks allow, up to the GPUs."""
    return [str(size) for size in _sizes(facts)] or UNKNOWN


@fact("splits.smaller", type="whole number")
def _smaller(facts: Facts) -> Any:
    """The largest of these sizes below the one that is set."""
    sizes = [size for size in _sizes(facts) if size < facts.job.parallelism.tensor]
    return sizes[-1] if sizes else UNKNOWN


@fact("splits.layers", type="whole number")
def _layers(facts: Facts) -> Any:
    """Layers that pipeline stages cannot share evenly, those of stages that are sized on their own not counted; null
    if they can. Unknown where a key lays the stages out in another way."""
    plan, model = facts.job.parallelism, facts.model
    if model is None or not _program(facts).get("layers") or "parallelism.pipeline" in facts.job.unstated:
        return UNKNOWN
    ends = [count for count in (plan.first_stage_layers, plan.last_stage_layers) if count]
    rest, stages = model.shape.layers - sum(ends), plan.pipeline - len(ends)
    if stages < 1 or (not ends and _lays_out(facts.reading.config.root)):
        return UNKNOWN
    return rest if rest % stages else None


@fact("splits.stages", type="whole number")
def _stages(facts: Facts) -> Any:
    """Pipeline stages that share `splits.layers`."""
    plan = facts.job.parallelism
    return plan.pipeline - sum(1 for count in (plan.first_stage_layers, plan.last_stage_layers) if count)


def _lays_out(node: Node, depth: int = 0) -> bool:
    """Whether a key anywhere in the config gives stages different numbers of layers."""
    if not node.is_mapping or depth > MAX_DEPTH:
        return False
    uneven = _table()["uneven_layers"]
    return any(
        (_plain_name(entry.key.value) in uneven and entry.value.value not in (None, False))
        or _lays_out(entry.value, depth + 1)
        for entry in node.entries()
    )


def _plain_name(key: Any) -> str:
    """`num_layers` of `--num-layers` and `model.num_layers`."""
    return str(key).lstrip("-").replace("-", "_").rpartition(".")[2]


MAX_DEPTH = 8


@fact("expert_grid", type="whole number")
def _expert_grid(facts: Facts) -> Any:
    """Ranks of a grid of experts, expert tensor x expert x pipeline parallel size, where Megatron makes the groups."""
    plan = facts.job.parallelism
    degrees = {f"parallelism.{name}" for name in ("expert", "expert_tensor", "pipeline", "tensor")}
    if degrees & {*facts.job.unstated} or not _program(facts).get("layers") or plan.expert < 1:
        return UNKNOWN
    return (plan.expert_tensor or plan.tensor) * plan.expert * plan.pipeline


@fact("expert_grid.least", type="whole number")
def _least_world(facts: Facts) -> Any:
    """The fewest GPUs of which the grid of experts and that of the dense layers both have a whole number."""
    grid = facts.get("expert_grid")
    return lcm(grid, facts.job.model_shards) if isinstance(grid, int) else UNKNOWN
