"""The sections of Megatron-Bridge's ConfigContainer: its dataclasses over those of Megatron-LM."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import TEXT, section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_OF_MEGATRON = (
    "megatron/core/datasets/blended_megatron_dataset_config.py",
    "megatron/core/datasets/gpt_dataset.py",
    "megatron/core/distributed/distributed_data_parallel_config.py",
    "megatron/core/model_parallel_config.py",
    "megatron/core/optimizer/optimizer_config.py",
    "megatron/core/transformer/heterogeneous/heterogeneous_config.py",
    "megatron/core/transformer/transformer_config.py",
)
"""What ConfigContainer's classes inherit from, beside megatron/training/config."""

_IMPORTED_AS = ("MTrain", "MCore")
"""Prefixes under which Megatron-Bridge imports classes of Megatron-LM that its own have the names of."""

_SECTIONS = {
    "model": ("Provider", "ModelConfig"),
    "dataset": ("DatasetConfig", "DatasetProvider"),
    "peft": ("LoRA", "DoRA", "PEFT"),
}
"""Sections of which a recipe chooses the class -> how such classes are called."""


def megatron_bridge(source: Source, megatron: Source) -> Json:
    """The keys of every section; those of all classes that a recipe may put there. Unknown ones are skipped."""
    own = source.texts(source.below(""))
    classes = Classes(own)
    below = [*_OF_MEGATRON, *megatron.below("megatron/training/config/")]
    for path in below:
        for name, node in megatron.classes(path).items():
            classes.classes.setdefault(name, node)
            for prefix in _IMPORTED_AS:
                classes.classes.setdefault(prefix + name, node)
    container = classes.classes["ConfigContainer"]
    properties: dict[str, Json] = {}
    for item in container.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name) or item.target.id[0] == "_":
            continue
        name = item.target.id
        endings = _SECTIONS.get(name)
        kinds = _ending(classes, endings) if endings else _named(classes, item.annotation)
        keys = [key for kind in kinds for key in classes.properties(kind)]
        properties[name] = section({key: {} for key in sorted(keys)}, "ignored") if keys else {}
    _open(properties)
    return whole("Megatron-Bridge ConfigContainer", properties, "ignored")


def _open(properties: dict[str, Json]) -> None:
    """`_target_` stands in every section, and a precision may be said by its name."""
    for part in properties.values():
        if "properties" in part:
            part["properties"]["_target_"] = {}
    properties["mixed_precision"] = {"anyOf": [properties["mixed_precision"], TEXT, {"type": "null"}]}
    properties["_target_"] = {}


def _named(classes: Classes, annotation: ast.expr) -> list[str]:
    """The classes of an annotation."""
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return [name for name in names if name in classes.classes]


def _ending(classes: Classes, endings: tuple[str, ...]) -> list[str]:
    return [name for name in classes.classes if name.endswith(endings)]
