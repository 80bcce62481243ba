"""Tools run from repositories: lingua, mistral-finetune, trlx, prime-rl, AReaL, SkyRL. All stop at unknown keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from .classes import Classes
from .schema import TEXT, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_APPS = {
    "apps/mamba/core_mamba.py": "BaseMambaArgs",
    "apps/mamba/mamba.py": "LMMambaArgs",
    "apps/fastRNN/hawk/core_hawk.py": "BaseHawkArgs",
    "apps/fastRNN/minGRU/core_gru.py": "BaseMinGRUArgs",
    "apps/fastRNN/minLSTM/core_lstm.py": "BaseMinLSTMArgs",
    "apps/mtp/transformer.py": "LMMTPArgs",
}
"""Arguments of models that other apps than the main one train."""


def lingua(source: Source) -> Json:
    """`TrainArgs` of the main app; its model's section has the keys of every app's model."""
    paths = ["apps/main/train.py", "apps/main/transformer.py", *source.below("lingua/")]
    classes = Classes(source.texts(paths), "refused")
    properties = {**classes.object("TrainArgs")["properties"], "model_type": TEXT, "config": TEXT}
    model = classes.definitions["LMTransformerArgs"]["properties"]
    for path, name in _APPS.items():
        if name in source.classes(path):
            keys = Classes(source.texts([path]), "refused").object(name)["properties"]
            model |= {key: {} for key in keys if key not in model}
    return whole("lingua config", properties, "refused", definitions=classes.definitions)


def mistral_finetune(source: Source) -> Json:
    """`TrainArgs`, with the arguments of its data, its adapter and its loggers."""
    classes = Classes(source.texts([*source.below("finetune/"), "model/args.py"]), "refused")
    properties = classes.object("TrainArgs")["properties"]
    return whole("mistral-finetune config", properties, "refused", definitions=classes.definitions)


def trlx(source: Source) -> Json:
    """`TRLConfig`; the section `method` has the keys of whichever method its `name` says."""
    classes = Classes(source.texts(["data/configs.py"]), "refused")
    properties = {**classes.object("TRLConfig")["properties"], "method": {"type": "object"}}
    return whole("trlx config", properties, "refused", definitions=classes.definitions)


def prime_rl(source: Source) -> Json:
    """`RLConfig` and `SFTConfig` together: the trainer's sections; what the two share or hand on is open."""
    own = ["configs/sft.py", "configs/trainer.py", "configs/shared.py"]
    classes = Classes(source.texts(own), "refused")
    trained = {"trainer": classes.reference("TrainerConfig"), **classes.object("SFTConfig")["properties"]}
    whole_run = Classes(source.texts(["configs/rl.py"]), "refused").object("RLConfig")["properties"]
    # a validator takes true for the section
    classes.definitions["ModelConfig"]["properties"]["full_offload"] = {}
    properties: Json = {key: {} for key in (*whole_run, *trained)}
    properties |= {key: trained[key] for key in ("trainer", "optim", "data")}
    return whole("prime-rl config", properties, "refused", definitions=classes.definitions)


def skyrl(source: Source, former: Source) -> Json:
    """SkyRLTrainConfig, and the keys of the YAML that its releases up to 0.4 laid overrides over.

    An entry point of one's own may derive a config with more keys.
    """
    classes = Classes(source.texts(["train/config/config.py"]), "refused")
    properties = classes.properties("SkyRLTrainConfig")
    definitions = classes.definitions
    for path in ("ppo_base_config.yaml", "megatron_config/policy.yaml"):
        known = yaml.safe_load(former.need(path))
        if path.startswith("megatron"):
            known = {"trainer": {"policy": {"megatron_config": known}}}
        _add_keys(properties, {key: part for key, part in known.items() if key != "defaults"}, definitions)
    return whole("SkyRL config", properties, "refused", "yaml", definitions=definitions)


def _add_keys(properties: Json, known: dict[str, Any], definitions: Json) -> None:
    """Add the keys of a mapping, at any depth, that are not there."""
    for key, value in known.items():
        part = properties.setdefault(key, {})
        while "$ref" in part:
            part = definitions[part["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and "properties" in part:
            _add_keys(part["properties"], value, definitions)


def areal(source: Source) -> Json:
    """The configs of SFT, rewards, DPO and PPO together; a section has the keys of every config that has it.

    SFT's `actor` was called `model` before 0.5. Workflows derive configs of their own from these.
    """
    classes = Classes(source.texts(["api/cli_args.py"]), "refused")
    kinds: dict[str, list[Json]] = {}
    for name in ("SFTConfig", "RWConfig", "DPOConfig", "PPOConfig", "GRPOConfig"):
        for key, part in classes.properties(name).items():
            parts = part.get("anyOf", [part])
            kinds[key] = [*kinds.get(key, ()), *(item for item in parts if item not in kinds.get(key, ()))]
    properties: Json = {key: parts[0] if len(parts) == 1 else {"anyOf": parts} for key, parts in kinds.items()}
    removed = {"x-removed": "removed in 1.0; `rejection_sampling` says it", "deprecated": True}
    for name in ("PPOActorConfig", "TeacherConfig"):
        # _LEGACY_REJECTION_SAMPLING_KEYS, which to_structured_cfg refuses with words of its own
        classes.definitions[name]["properties"] |= {f"behave_imp_weight_{part}": removed for part in ("cap", "mode")}
    return whole("AReaL config", properties, "refused", "yaml", definitions=classes.definitions)
