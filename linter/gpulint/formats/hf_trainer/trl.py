"""Which trainer a Transformers/TRL config is for, and what preference and online objectives add.

Facts from trl 1.16.0 (`trainer/*_config.py`, `dpo_trainer.py`, `grpo_trainer.py`, `generation/vllm_generation.py`).
The file never names its trainer; it follows from the keys, then from the names in the path (`recipes/x/dpo/...`),
and is SFT where nothing tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.arguments import Arguments
    from ..core.format import JobBuilder

_NAMES = {
    "sft": "sft", "pretrain": "pretrain", "pt": "pretrain", "cpt": "pretrain", "clm": "pretrain", "dpo": "dpo",
    "ipo": "dpo",
    "kto": "kto", "orpo": "orpo", "cpo": "cpo", "simpo": "simpo", "ppo": "ppo", "grpo": "grpo", "rloo": "rloo",
    "reward": "reward", "rm": "reward", "rewardmodeling": "reward", "spin": "dpo",
}  # fmt: skip
"""What people call a trainer -> the Job's objective."""

_NAMING_KEYS = ("trainer_type", "training_type", "task_type", "training_stage", "rl")

_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "grpo",
        (
            "num_generations", "max_completion_length", "generation_batch_size", "steps_per_generation",
            "num_generations_eval", "reward_funcs", "scale_rewards", "num_iterations", "vllm_mode",
            "vllm_enable_sleep_mode", "mask_truncated_completions", "use_vllm",
        ),
    ),
    ("ppo", ("num_ppo_epochs", "cliprange", "reward_model_path", "total_episodes", "vf_coef")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("simpo", ("simpo_gamma", "gamma_beta_ratio")),
    ("cpo", ("cpo_alpha",)),
    ("reward", ("center_rewards_coefficient",)),
)  # fmt: skip
"""Keys that belong to one trainer only, in the order in which they decide."""

_PREFERENCE_KEYS = (
    "precompute_ref_log_probs", "sync_ref_model", "rpo_alpha", "ld_alpha", "use_weighting", "ref_model_init_kwargs",
    "f_divergence_type", "max_prompt_length", "beta",
)  # fmt: skip
"""Keys of preference trainers: DPO unless the path says which other one."""

_LOSSES = {
    "orpo": "orpo", "simpo": "simpo", "cpo": "cpo", "kto": "kto", "bco": "kto", "dpo": "dpo", "sigmoid": "dpo",
    "hinge": "dpo", "ipo": "dpo", "exo_pair": "dpo", "nca_pair": "dpo", "robust": "dpo", "bco_pair": "dpo",
    "aot": "dpo", "aot_pair": "dpo", "apo_zero": "dpo", "apo_down": "dpo", "dpo_norm": "dpo", "discopop": "dpo",
    "sppo_hard": "dpo", "sft": "dpo", "grpo": "grpo", "dapo": "grpo", "bnpo": "grpo", "dr_grpo": "grpo", "nll": "sft",
    "dft": "sft", "chunked_nll": "sft",
}  # fmt: skip
"""`loss_type` -> objective."""

PREFERENCE = frozenset({"dpo", "kto", "orpo", "cpo", "simpo"})
ONLINE = frozenset({"grpo", "rloo", "ppo"})


def set_objective(builder: JobBuilder, arguments: Arguments, program: str = "", own: str | None = None) -> str:
    """Fill `objective` and return it. `trl dpo` decides; the name of another program comes after the file's keys.

    `own` is the only objective of the program that starts the file.
    """
    if own is not None:
        builder.derived("objective", own, f"started with {program}")
        return own
    if program.startswith("trl ") and _plain(program[4:]) in _NAMES:
        builder.derived("objective", _NAMES[_plain(program[4:])], f"started with {program}")
        return _NAMES[_plain(program[4:])]
    named = next((g for key in _NAMING_KEYS if (g := arguments.text(key)) and _plain(g.value) in _NAMES), None)
    if named:
        return _put(builder, _NAMES[_plain(named.value)], named, "")
    for objective, keys in _KEYS:
        given = arguments.raw(*keys)
        if given is not None:
            objective = "rloo" if objective == "grpo" and "rloo_k" in arguments else objective
            return _put(builder, objective, given, f"{given.key} is a key of {objective.upper()}")
    script = _path_objective(program) if program else None
    if script is not None:
        builder.derived("objective", script, f"started with {program}")
        return script
    path = _path_objective(builder.document.path)
    loss = _loss(arguments)
    preference = arguments.raw(*_PREFERENCE_KEYS)
    if loss is not None and (path is None or preference is None):
        return _put(builder, loss[0], loss[1], f"loss {loss[1].value}")
    if path is not None:
        builder.derived("objective", path, f"the file's path says {path}")
        return path
    if preference is not None:
        return _put(builder, "dpo", preference, f"{preference.key} is a key of DPO")
    task = arguments.text("lora_task_type")
    if task and task.value == "SEQ_CLS":
        return _put(builder, "reward", task, "a sequence classifier is a reward model")
    builder.assumed("objective", "sft", "no key says which trainer; supervised fine-tuning")
    return "sft"


def _put(builder: JobBuilder, objective: str, given: Any, note: str) -> str:
    builder.from_entry("objective", objective, given.entry, given.key, note)
    return objective


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower()).removesuffix("trainer")


def _loss(arguments: Arguments) -> tuple[str, Any] | None:
    given = arguments.raw("loss_type")
    names = given.value if given and isinstance(given.value, list) else [given.value] if given else []
    for name in names:
        if isinstance(name, str) and name.lower() in _LOSSES and given is not None:
            return _LOSSES[name.lower()], given
    return None


def _path_objective(path: str) -> str | None:
    """The objective that the innermost part of a path names: `recipes/zephyr/dpo/config_full.yaml` -> dpo."""
    for part in reversed(path.replace("\\", "/").lower().split("/")):
        for word in re.split(r"[^a-z]+", part):
            if word in _NAMES and word not in ("pt", "rm", "spin"):
                return _NAMES[word]
    return None


def set_rl(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any], objective: str) -> None:
    """Fill `rl.*`: lengths, generations, reference model, colocated vLLM.

    A reference model is a second frozen copy of the weights: DPO and KTO keep one in a full fine-tune unless its
    log-probabilities are computed beforehand, GRPO and RLOO when `beta` is not 0; with an adapter the base model with
    the adapter switched off is the reference.
    """
    if objective in ONLINE:
        _set_online(builder, arguments, defaults, objective)
    if objective in PREFERENCE or objective == "grpo":
        prompt = arguments.integer("max_prompt_length", least=1)
        if prompt:
            builder.from_entry("rl.prompt_length", prompt.value, prompt.entry, prompt.key)
        elif usual := _length(defaults, "max_prompt_length", objective):
            builder.default("rl.prompt_length", usual)
    if objective in ("dpo", "kto"):
        given = arguments.flag("precompute_ref_log_probs")
        if given:
            builder.from_entry("rl.precompute_reference", given.value, given.entry, given.key)
        else:
            builder.default("rl.precompute_reference", bool(defaults.get("precompute_reference", False)))
    _set_reference(builder, arguments, defaults, objective)


def _length(defaults: dict[str, Any], name: str, objective: str) -> int | None:
    """A default length, which some releases of TRL choose by the trainer (`releases.json`)."""
    usual = defaults.get(name)
    found: int | None = usual.get(objective, usual[""]) if isinstance(usual, dict) else usual
    return found


def _set_reference(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any], objective: str) -> None:
    job = builder.job
    path = "rl.reference_model"
    if objective in ("dpo", "kto"):
        if job.method != "full":
            builder.derived(path, False, "the base model without its adapter is the reference", "method")
        elif job.rl.precompute_reference:
            builder.derived(path, False, "its log-probabilities are precomputed", "rl.precompute_reference")
        else:
            builder.derived(path, True, f"{objective.upper()} keeps a frozen copy of the model", "objective")
    elif objective in ("grpo", "rloo"):
        beta = arguments.number("beta", "kl_coef")
        value = beta.value if beta else float(defaults.get("grpo_beta", 0.05 if objective == "rloo" else 0.0))
        if value == 0 or job.method != "full":
            builder.derived(path, False, "beta is 0" if value == 0 else "the adapter is switched off instead")
        elif beta:
            builder.from_entry(path, True, beta.entry, beta.key, "beta > 0 needs a frozen copy of the model")
        else:
            builder.default(path, True, f"default beta {value} of {builder.upstream} needs a frozen copy")
    elif objective == "ppo":
        builder.derived(path, job.method == "full", "PPO compares with the starting model", "objective")
        reward = arguments.text("reward_model_path", "reward_model")
        if reward:
            builder.from_entry("rl.reward_model", reward.value, reward.entry, reward.key)
    else:
        builder.derived(path, False, f"{objective} has no reference model", "objective")


def _set_online(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any], objective: str) -> None:
    for path, key, keys in (
        ("rl.generations", "num_generations", ("num_generations", "rloo_k")),
        ("rl.completion_length", "max_completion_length", ("max_completion_length", "response_length")),
    ):
        given = arguments.integer(*keys, least=1)
        if given:
            builder.from_entry(path, given.value, given.entry, given.key)
        elif key in defaults:
            builder.default(path, 2 if objective == "rloo" and key == "num_generations" else defaults[key])
    use_vllm = arguments.flag("use_vllm")
    if not use_vllm or not use_vllm.value:
        builder.default("rl.vllm", None)
        return
    mode = arguments.text("vllm_mode")
    if mode:
        builder.from_entry("rl.vllm", mode.value, mode.entry, mode.key)
    else:
        note = f"default vllm_mode of {builder.upstream}"
        builder.from_entry("rl.vllm", defaults.get("vllm_mode", "server"), use_vllm.entry, use_vllm.key, note)
    share = arguments.number("vllm_gpu_memory_utilization")
    if share:
        builder.from_entry("rl.vllm_gpu_memory_utilization", share.value, share.entry, share.key)
    else:
        builder.default("rl.vllm_gpu_memory_utilization", defaults.get("vllm_gpu_memory_utilization"))
    sleep = arguments.flag("vllm_enable_sleep_mode")
    if sleep:
        builder.from_entry("rl.vllm_sleep", sleep.value, sleep.entry, sleep.key)
    else:
        builder.default("rl.vllm_sleep", False)


def _set_target(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any]) -> None:
    """What the decoder of an encoder-decoder reads, and whether its encoder is trained."""
    frozen = arguments.flag("freeze_encoder")
    if frozen and frozen.value:
        builder.from_entry("trainable", [r"^(?!model\.encoder\.)"], frozen.entry, frozen.key, "the encoder is frozen")
    target = arguments.integer("max_target_length", least=1)
    if target:
        builder.from_entry("target_length", target.value, target.entry, target.key)
    elif "longest_target" in defaults:
        note = "labels are not cut: the most that the decoder has positions for"
        builder.assumed("target_length", defaults["longest_target"], note)
    else:
        builder.default("target_length", defaults.get("max_target_length"))


SAMPLING_RATE = 16000
"""Samples a second that Wav2Vec2's and HuBERT's extractors ask for (Wav2Vec2FeatureExtractor)."""


def _set_sound(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any]) -> None:
    """Samples of the longest recording that is kept, and whether the convolutions over them are trained."""
    seconds = arguments.number("max_duration_in_seconds")
    if seconds:
        note = f"{seconds.key} at {SAMPLING_RATE} samples a second"
        samples = round(seconds.value * SAMPLING_RATE)
        builder.from_entry("sequence_length", samples, seconds.entry, seconds.key, note)
    else:
        builder.default("sequence_length", round(defaults["max_duration"] * SAMPLING_RATE))
    frozen = arguments.flag("freeze_feature_encoder")
    pattern = [r"^(?!.*feature_extractor\.)"]
    if frozen and frozen.value:
        builder.from_entry("trainable", pattern, frozen.entry, frozen.key, "the feature encoder is frozen")
    elif not frozen and defaults.get("freeze_features"):
        builder.default("trainable", pattern)


ASSUMED_PROMPT = 512
"""Prompt tokens where nothing bounds them: the `max_prompt_length` default of trl 0.9 to 0.24, later dropped."""


def set_lengths(builder: JobBuilder, arguments: Arguments, defaults: dict[str, Any], objective: str) -> None:
    """Fill `sequence_length`: prompt and completion together for online trainers, else the longest row."""
    if objective in ONLINE:
        whole = arguments.integer("vllm_max_model_length", "vllm_max_model_len", least=1)
        completion = builder.job.rl.completion_length or 0
        if builder.job.rl.prompt_length is None and whole and whole.value > completion:
            note = f"{whole.key} less the completion"
            builder.from_entry("rl.prompt_length", whole.value - completion, whole.entry, whole.key, note)
        elif builder.job.rl.prompt_length is None:
            note = f"prompts are not bounded; {ASSUMED_PROMPT} tokens"
            builder.assumed("rl.prompt_length", ASSUMED_PROMPT, note)
        total = (builder.job.rl.prompt_length or 0) + completion
        builder.derived("sequence_length", total, "prompt and completion", "rl.completion_length")
        return
    if objective == "ctc":
        _set_sound(builder, arguments, defaults)
        return
    if objective == "seq2seq":
        _set_target(builder, arguments, defaults)
    names = (
        "max_source_length", "max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length",
        "model_max_len", "max_sequence_length", "data_max_length", "seq_length", "sequence_length",
    )  # fmt: skip
    given = arguments.integer(*names, least=1)
    if given:
        builder.from_entry("sequence_length", given.value, given.entry, given.key)
        return
    source, target = arguments.integer("source_max_len", least=1), arguments.integer("target_max_len", least=1)
    if source and target:
        note = "source_max_len and target_max_len"
        builder.from_entry("sequence_length", source.value + target.value, target.entry, target.key, note)
        return
    unbounded = arguments.raw("max_length", "max_seq_length")
    if unbounded is not None and unbounded.value is None:
        note = "null: rows are never cut, the longest decides"
        builder.from_entry("sequence_length", None, unbounded.entry, unbounded.key, note)
    elif usual := _length(defaults, "max_length", objective):
        builder.default("sequence_length", usual)
    else:
        builder.assumed("sequence_length", None, "no key bounds the length of a row")
