"""The arguments of ms-swift, and the DeepSpeed configs that it ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import fields, kind_only
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"

MODULES = (
    "arguments/base_args/", "arguments/sft_args.py", "arguments/pretrain_args.py", "arguments/rlhf_args.py",
    "arguments/tuner_args.py", "trainers/arguments.py", "rlhf_trainers/args_mixin.py", "rlhf_trainers/arguments.py",
)  # fmt: skip


def ms_swift(source: Source) -> Json:
    """The argument classes of training; those of the Transformers Trainer are as `hf_trainer.json` has them."""
    properties = _arguments(source, MODULES)
    trainer = json.loads((SCHEMAS / "hf_trainer.json").read_text(encoding="utf-8"))["properties"]
    for key, value in trainer.items():
        if "x-removed" not in value:
            properties.setdefault(key, {} if "x-classes" in value else kind_only(value))
    return whole("ms-swift arguments", properties | _former(), "refused")


def megatron_swift(source: Source) -> Json:
    """The argument classes of its Megatron trainer, over those of all its commands.

    A flag `--no_save_optim` without a value reaches a schema as `save_optim`.
    """
    properties = _arguments(source, ("megatron/arguments/", MODULES[0])) | _former()
    for name in [name for name in properties if name.startswith("no_")]:
        properties.setdefault(name[3:], {})
    return whole("Megatron-SWIFT arguments", properties, "refused")


def _arguments(source: Source, places: tuple[str, ...]) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    for place in places:
        for path in source.below(place):
            for cls in source.classes(path).values():
                for key, value in fields(cls, {}).items():
                    properties.setdefault(key, kind_only(value))
    return properties


def _former() -> dict[str, Json]:
    former = (("train_type", "tuner_type"), ("sft_type", "tuner_type"), ("model_id_or_path", "model"))
    return {name: {"deprecated": True, "x-replacement": now} for name, now in former}


def ms_swift_shipped(source: Source) -> Json:
    """The DeepSpeed configs that have short names."""
    paths = source.below("config/zero", ".json")
    return {"files": {path[len("config/") : -len(".json")]: json.loads(source.need(path)) for path in paths}}
