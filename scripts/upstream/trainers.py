"""The dataclasses of LLM Foundry, OLMo and nanotron; unknown keys stop all three tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .classes import Classes
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def llm_foundry(source: Source) -> Json:
    """`TrainConfig`; apply_transforms_to_config takes names of files for `icl_tasks` and `eval_gauntlet`."""
    classes = Classes(source.texts(["utils/config_utils.py"]), "refused")
    properties = {**classes.object("TrainConfig")["properties"], "icl_tasks": {}, "eval_gauntlet": {}}
    return whole("LLM Foundry config", properties, "refused", definitions=classes.definitions)


def olmo(source: Source) -> Json:
    """`TrainConfig`; update_legacy_settings takes true and false for `activation_checkpointing`.

    `data.custom_dataset` came after the release.
    """
    classes = Classes(source.texts(["config.py"]), "refused")
    properties = {**classes.object("TrainConfig")["properties"], "activation_checkpointing": {}}
    classes.definitions["DataConfig"]["properties"]["custom_dataset"] = {}
    return whole("OLMo config", properties, "refused", definitions=classes.definitions)


def nanotron(source: Source) -> Json:
    """`Config`; sections that examples read with classes of their own are open (`doremi`, Mamba's `init_method`)."""
    classes = Classes(source.texts(source.below("config/")), "refused")
    properties = {**classes.object("Config")["properties"], "doremi": {}}
    # `Classes` takes a field `model_config` for pydantic's; folders may have weights, whatever the annotation says
    for part in classes.definitions.values():
        if "dataset_folder" in part["properties"]:
            part["properties"]["dataset_folder"] = {}
    classes.definitions["ModelArgs"]["properties"] |= {"model_config": {}, "init_method": {}}
    return whole("nanotron config", properties, "refused", definitions=classes.definitions)
