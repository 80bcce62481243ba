"""Facts about a training job that need the model: its classes, its attention, its adapter."""

from __future__ import annotations

from functools import cache
from typing import Any

from ... import models
from ...estimator.frameworks.frameworks import of_transformers
from ...source.tables import read_table
from ..expression import UNKNOWN
from .facts import Facts, fact

_FAMILIES = {
    "sdpa": "sdpa", "flash_attention_2": "flash_attention", "flash_attention_3": "flash_attention",
}  # fmt: skip
"""The Job's attention -> the family that a Transformers class says it supports."""

_NARROW_ROLES = ("router", "other")
"""Roles of matrices that are narrow by nature: one output an expert, one gate for a shared expert."""

MAX_PATTERNS, MAX_PATTERN = 200, 1000
"""Targets that are tried as patterns, and their letters."""

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@cache
def _modeling() -> dict[str, dict[str, list[str]]]:
    """`models/modeling_classes.json`: layer classes and refused attention of each model type."""
    types: dict[str, dict[str, list[str]]] = read_table(models.__file__, "modeling_classes.json")["types"]
    return types


@cache
def _owners() -> dict[str, frozenset[str]]:
    """Layer class -> the model types whose modeling files define it."""
    owners: dict[str, set[str]] = {}
    for name, row in _modeling().items():
        for layer in row["layers"]:
            owners.setdefault(layer, set()).add(name)
    return {layer: frozenset(types) for layer, types in owners.items()}


@fact("attention.unsupported")
def _attention_unsupported(facts: Facts) -> Any:
    """Whether Transformers' class of the model does not support the job's attention kernel."""
    family = _FAMILIES.get(facts.job.attention)
    row = _modeling().get(facts.model.model_type) if facts.model is not None else None
    if row is None or not of_transformers(facts.job):
        return UNKNOWN
    return family is not None and family in row["refuses"]


@fact("model.unsupported_attention", type="list of text")
def _unsupported_attention(facts: Facts) -> Any:
    """Attention kernels that Transformers' class of the model does not support: `sdpa`, `flash_attention`."""
    row = _modeling().get(facts.model.model_type) if facts.model is not None else None
    return UNKNOWN if row is None else row["refuses"]


@fact("fsdp.mismatched_layer_classes", type="list of text")
def _mismatched_layer_classes(facts: Facts) -> Any:
    """Layer classes in FSDP's wrap policy that belong to other model types; unknown for multimodal models."""
    fsdp, model = facts.job.parallelism.fsdp, facts.model
    if fsdp is None or model is None or model.model_type not in _modeling():
        return UNKNOWN
    if any(isinstance(model.config.get(key), dict) for key in ("text_config", "vision_config")):
        return UNKNOWN
    own = _modeling()[model.model_type]["layers"]
    return [name for name in fsdp.layer_classes if name not in own and name in _owners()]


@fact("model.layer_classes", type="list of text")
def _layer_classes(facts: Facts) -> Any:
    """Layer classes of the model in Transformers."""
    row = _modeling().get(facts.model.model_type) if facts.model is not None else None
    return UNKNOWN if row is None else row["layers"]


@fact("model.head_dim", type="whole number")
def _head_dim(facts: Facts) -> Any:
    """Size of an attention head; the largest, if layers differ."""
    shape = facts.model.shape if facts.model is not None else None
    if shape is None or not shape.head_dim:
        return UNKNOWN
    return max((shape.head_dim, *(size for size in shape.layer_head_dims if size)))


@fact("model.config_dtype")
def _config_dtype(facts: Facts) -> Any:
    """`dtype` (`torch_dtype`) of the model's config.json."""
    if facts.model is None:
        return UNKNOWN
    config = facts.model.config
    nested = config.get("text_config")
    for source in (config, nested if isinstance(nested, dict) else {}):
        value = source.get("dtype") or source.get("torch_dtype")
        if isinstance(value, str):
            return value.removeprefix("torch.")
    return UNKNOWN


@fact("attention.score_bytes", "bytes")
def _scores(facts: Facts) -> Any:
    """Bytes of one layer's attention scores with eager attention: micro batch x heads x length^2 values."""
    job = facts.job
    if facts.model is None or not job.micro_batch_size or not job.sequence_length or not facts.model.shape.heads:
        return UNKNOWN
    width = _ITEM_BYTES.get(job.precision.autocast or job.weights.dtype or "bfloat16", 2)
    return job.micro_batch_size * facts.model.shape.heads * job.sequence_length**2 * width


@fact("adapter.max_effective_rank", type="whole number")
def _max_effective_rank(facts: Facts) -> Any:
    """The smaller side of the smallest adapted matrix (routers and gates excluded), above which a LoRA rank adds
    nothing. Only for low-rank adapters.
    """
    if facts.model is None or facts.job.adapter is None:
        return UNKNOWN
    from ...estimator.states.adapter_parameters import expert_targets
    from ...models.adapter_types import LOW_RANK, kind_of
    from ...models.lora import NotAdaptable, adapted
    from ...upstream.stack import Stack

    if kind_of(facts.job.adapter) not in LOW_RANK:
        return UNKNOWN

    try:
        modules = adapted(facts.model, facts.job.adapter, expert_targets(facts.job, facts.model), Stack(facts.job))
    except NotAdaptable:
        return UNKNOWN
    sides = [min(module.in_features, module.out_features) for module in modules if module.role not in _NARROW_ROLES]
    return min(sides, default=UNKNOWN)


@fact("adapter.invalid_patterns", type="list of text")
def _invalid_patterns(facts: Facts) -> Any:
    """Target patterns of the adapter that are not valid regular expressions."""
    adapter = facts.job.adapter
    if adapter is None or not isinstance(adapter.targets, list):
        return UNKNOWN
    return [str(name) for name in adapter.targets[:MAX_PATTERNS] if not _compiles(str(name)[:MAX_PATTERN])]


def _compiles(pattern: str) -> bool:
    import re

    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


@fact("versions.stated")
def _stated(facts: Facts) -> Any:
    """Whether the launcher or the settings state the version of any package that the job runs on."""
    return bool(facts.project.versions)


@fact("gpus.per_node", type="whole number")
def _per_node(facts: Facts) -> Any:
    """GPUs per node: all GPUs / nodes; without a number of nodes at most 8 per node."""
    from ...estimator.states.parameter import per_node

    return per_node(facts.job)
