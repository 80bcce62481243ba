"""The keys of verl's configs, and what its own say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from .classes import Classes
from .schema import TEXT, section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_TRAINERS = {"ppo_trainer": "_generated_ppo_trainer", "ppo_megatron_trainer": "_generated_ppo_megatron_trainer"}
"""verl's trainer configs and the files that hold them put together."""

_OPEN = re.compile(r"override\w*|\w*_kwargs|extra|custom\w*|turbo_config|deepspeed|ray_kwargs|hydra|defaults")


def verl_configs(source: Source) -> dict[str, Any]:
    """Every config that verl ships, by name."""
    paths = [path for path in source.below("verl/", ".yaml") if path.split("/")[-2] == "config"]
    return {path.rpartition("/")[2].removesuffix(".yaml"): yaml.safe_load(source.need(path)) for path in paths}


def verl(source: Source) -> Json:
    """The keys of verl's configs put together, and of those that build on them."""
    configs = [value for value in verl_configs(source).values() if isinstance(value, dict)]
    return whole("verl config", _keys([value for value in configs if "actor_rollout_ref" in value]), "ignored")


def verl_sft(source: Source, older: Source) -> Json:
    """The keys of `sft_trainer_engine.yaml` with every group that it chooses from, and of the older trainer's."""
    configs: list[dict[str, Any]] = []
    for each in (source, older):
        configs += [_without_unread(each, path) for path in each.below(_CONFIGS, ".yaml") if _SFT.search(path)]
        for group in _GROUPS:
            parts = [yaml.safe_load(each.need(path)) for path in each.below(f"{_CONFIGS}{group}/", ".yaml")]
            configs += [{group: part} for part in parts]
    fields = Classes(source.texts(source.below("verl/workers/config/")))
    named = {"model": _MODELS, "engine": "EngineConfig", "optim": "OptimizerConfig"}
    for group, base in named.items():
        names = [name for name in fields.classes if name.endswith(base)]
        configs += [{group: dict.fromkeys(fields.properties(name), None)} for name in names]
    keys = _keys(configs)
    for group in set(_GROUPS) & set(keys):
        keys[group] = {"anyOf": [keys[group], TEXT]}
    for name in _OFTEN:
        keys["trainer"]["properties"][name] = {}
    return whole("verl SFT config", keys, "ignored")


def _without_unread(source: Source, path: str) -> dict[str, Any]:
    """A config without the keys that its comments call deprecated and that no trainer of its kind reads."""
    text = source.need(path)
    trainers = "".join(source.need(module) for module in source.below("verl/trainer/") if "sft" in module)
    config: dict[str, Any] = yaml.safe_load(text)
    for name in re.findall(r"^ +(\w+): null +# will be deprecated", text, re.MULTILINE):
        if not re.search(rf"\.{name}\b", trainers):
            for section in config.values():
                if isinstance(section, dict):
                    section.pop(name, None)
    return config


_CONFIGS = "verl/trainer/config/"
_SFT = re.compile(r"/sft_trainer(_engine)?\.yaml$")
_MODELS = "HFModelConfig"
_GROUPS = ("model", "engine", "optim", "profiler")
"""Sections that a command may choose whole: `engine=megatron`."""
_OFTEN = ("save_freq", "test_freq")
"""A number of steps, or `after_each_epoch`."""


def _keys(values: list[Any]) -> dict[str, Json]:
    """The keys of several configs laid over each other; a mapping that is empty or free anywhere is open."""
    out: dict[str, Json] = {}
    for key in dict.fromkeys(key for value in values for key in value):
        inner = [value[key] for value in values if isinstance(value.get(key), dict)]
        is_open = _OPEN.fullmatch(key) is not None or any(not value for value in inner)
        if inner and not is_open:
            out[key] = section(_keys(inner), "ignored")
        else:
            scalars = {type(value[key]) for value in values if key in value}
            kind = {int: "integer", float: "number"}.get(next(iter(scalars))) if len(scalars) == 1 else None
            out[key] = {"type": "number"} if kind and not is_open else {}
    return out


_KEEP = re.compile(
    r"(actor_rollout_ref|critic|reward|algorithm|trainer|data)$|trainer\.(nnodes|n_gpus_per_node)"
    r"|data\.max_\w+|algorithm\.(adv_estimator|use_kl_in_reward)|actor_rollout_ref\.(actor|ref|rollout|model)$"
    r"|actor_rollout_ref\.actor\.(strategy|ppo_\w+|use_dynamic_bsz|use_kl_loss|ulysses\w+|fsdp_config|megatron|optim)$"
    r"|actor_rollout_ref\.actor\.(optim\.optimizer|fsdp_config\.(\w*offload\w*|reshard\w+|fsdp_size|forward_prefetch"
    r"|model_dtype|use_orig_params|dtype)|megatron\.(\w*offload|\w*parallel\w*|use_distributed_optimizer|dtype"
    r"|override_transformer_config.*))$|actor_rollout_ref\.ref\.(fsdp_config|megatron)(\.param_offload)?$"
    r"|actor_rollout_ref\.rollout\.(gpu_memory_utilization|free_cache_engine|n|nnodes|tensor_model_parallel_size)$"
    r"|actor_rollout_ref\.model\.(enable_\w+|use_\w+|lora_rank|lora_alpha|target_modules|path|lora|lora\.rank)$"
    r"|critic\.(enable|fsdp|megatron|fsdp_config|fsdp\.\w*offload|megatron\.\w*offload)$"
    r"|reward\.reward_model(\.(enable|model_path))?$"
)


def verl_shipped(source: Source) -> Json:
    """The trainer configs, with the keys that decide memory."""

    def kept(value: object, prefix: str) -> object:
        if not isinstance(value, dict):
            return value
        return {key: kept(item, f"{prefix}{key}.") for key, item in value.items() if _KEEP.match(prefix + key)}

    configs = verl_configs(source)
    files = {f"verl/trainer/config/{name}.yaml": kept(configs[place], "") for name, place in _TRAINERS.items()}
    return {"files": files}
