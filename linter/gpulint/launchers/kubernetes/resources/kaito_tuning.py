"""KAITO's tuning: SFTTrainer with the parameters of a ConfigMap (`presets/workspace/tuning`, KAITO 0.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...launch import Resources, Started
from ...values import scalar, value_at
from ..command import Assembly
from .presets import kaito_preset, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....source.node import Node
    from ..manifests import Manifests, Object

_SECTIONS = {
    "ModelConfig": {"torch_dtype": "dtype"},
    "QuantizationConfig": {
        "load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit",
        "bnb_4bit_quant_type": "bnb_4bit_quant_type", "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
    },
    "LoraConfig": {
        "r": "lora_r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout",
        "target_modules": "lora_target_modules", "use_dora": "use_dora", "use_rslora": "use_rslora",
        "modules_to_save": "lora_modules_to_save",
    },
}  # fmt: skip
"""Section of the ConfigMap -> its keys and the arguments of TRL that mean the same; TrainingArguments are arguments."""

_TEMPLATE = (
    ("dtype", "bfloat16"), ("lora_r", 8), ("lora_alpha", 8), ("lora_dropout", 0.0),
    ("per_device_train_batch_size", 1),
)  # fmt: skip
_QUANTIZED = (("load_in_4bit", "true"), ("bnb_4bit_quant_type", "nf4"), ("use_bnb_nested_quant", "true"))
"""charts/kaito/workspace/templates/lora-params.yaml and qlora-params.yaml: where the file has no ConfigMap."""

_PHI_3 = ("k_proj", "q_proj", "v_proj", "o_proj", "gate_proj", "down_proj", "up_proj")
"""DEFAULT_TARGET_MODULES of pkg/workspace/tuning/preset_tuning.go."""


def tune(tuning: Node, item: Object, manifests: Manifests, resources: Resources) -> Started:
    """The job of `tuning`: method `lora` or `qlora` on a preset's model, with TRL's SFTTrainer."""
    name = value_at(tuning, "preset.name")
    row = kaito_preset(str(name.value)) if name is not None else None
    if name is None or row is None:
        shown = f"the preset {name.value} is not one of KAITO's" if name is not None else "sets no preset"
        return Started([], [], shown)
    release = table("kaito")["release"]
    line = Assembly(manifests.file, name, "trl sft")
    line.add("model_name_or_path", row["model"], f"the preset {name.value} of KAITO {release}", "derived")
    line.add("use_peft", "true", "KAITO trains adapters")
    if str(name.value).strip().lower().startswith("phi-3"):
        line.add("lora_target_modules", _PHI_3, f"set by KAITO {release} for phi-3 presets")
    config = tuning.get("config")
    stated = manifests.embedded(config, "training_config.yaml")
    if stated is not None:
        for flag, node in _stated(stated.root):
            line.say(flag, node)
    else:
        note = (
            f"default parameters of KAITO {release}" if config is None else f"KAITO's default: no {config.value} here"
        )
        quantized = scalar(tuning, "method").lower() == "qlora"
        for flag, value in (*_TEMPLATE, *(_QUANTIZED if quantized else ())):
            line.add(flag, value, note, "default" if config is None else "assumed")
    return line.jobs(manifests.project, resources, item.part, table("kaito")["tuning"])


def _stated(root: Node) -> Iterator[tuple[str, Node]]:
    """The arguments that a `training_config` gives, those with one value."""
    sections = root.get("training_config")
    for entry in sections.entries() if sections is not None else ():
        section = str(entry.key.value)
        names = _SECTIONS.get(section)
        for inner in entry.value.entries():
            key = str(inner.key.value)
            flag = key if section == "TrainingArguments" else (names or {}).get(key)
            if flag is not None and inner.value.is_scalar:
                yield flag, inner.value
