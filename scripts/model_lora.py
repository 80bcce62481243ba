"""Write `lora_targets.json`: what PEFT targets by default, and how it rewrites targets of mixture-of-experts models."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


_PREFIX, _SUFFIX = "TRANSFORMERS_MODELS_TO_", "_TARGET_MODULES_MAPPING"


def _by_type(constants: object) -> dict[str, dict[str, list[str]]]:
    """The default targets of the types that have others than LoRA, by the type's name without its dashes."""
    names = [name for name in dir(constants) if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    found = {name.removeprefix(_PREFIX).removesuffix(_SUFFIX).lower(): getattr(constants, name) for name in names}
    return {kind: targets for kind, targets in found.items() if targets != found["lora"]}


def write(folder: Path) -> None:
    """Read the tables of the installed peft and transformers."""
    constants = importlib.import_module("peft.utils.constants")
    conversion = importlib.import_module("peft.utils.transformers_weight_conversion")
    mapping = importlib.import_module("transformers.conversion_mapping")
    versions = [importlib.import_module(name).__version__ for name in ("peft", "transformers")]
    fused = {
        kind: {"names": names, "together": conversion._MOE_FUSED_TARGETS[kind]}  # noqa: SLF001
        for kind, names in conversion._MOE_TARGET_MODULE_MAPPING.items()  # noqa: SLF001
    }
    moe = {
        model_type: kind
        for model_type, kind in sorted(conversion._MODEL_TO_CONVERSION_PATTERN.items())  # noqa: SLF001
        if kind in fused and mapping.get_checkpoint_conversion_mapping(model_type) is not None
    }
    data = {
        "source": f"peft {versions[0]}, transformers {versions[1]}",
        "defaults": constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING,
        "by_type": _by_type(constants),
        "feedforward": constants.TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING,
        "moe": moe,
        "fused": fused,
        "mamba": {
            "model_types": ["falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"],
            "modules": ["out_proj", "conv1d"],
        },
    }
    (folder / "lora_targets.json").write_text(json.dumps(data, indent=1) + "\n")
