"""Which trainer a Transformers/TRL config is for, and what preference and online objectives add.

Facts from trl 1.16.0 (`trainer/*_config.py`, `dpo_trainer.py`, `grpo_trainer.py`, `generation/vllm_generation.py`).
The file never names its trainer; it follows from the keys, then from the names in the path (`recipes/x/dpo/...`),
and is SFT where nothing tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Assumed, Key, only
from .trainer_profiles import OBJECTIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...job.job import Job
    from ..core.arguments import Arguments
    from ..core.bindings.rows import Row
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
    stated = arguments.text(OBJECTIVE)
    if stated is not None:
        return _put(builder, stated.value, stated, "the class of the trainer")
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


def _is(*objectives: str) -> Callable[[Job], bool]:
    return lambda job: job.objective in objectives


def _or_later(name: str) -> Callable[[Reader], Any]:
    """The program's default, where it has one."""
    return lambda reader: reader.defaults.get(name, LEAVE)


def _usual_length(name: str) -> Callable[[Reader], Any]:
    """A default length, which some releases of TRL choose by the trainer (`releases.json`)."""

    def source(reader: Reader) -> Any:
        usual = reader.defaults.get(name)
        return (usual.get(reader.job.objective, usual[""]) if isinstance(usual, dict) else usual) or LEAVE

    return source


def _generations(reader: Reader) -> Any:
    usual = reader.defaults.get("num_generations", LEAVE)
    return 2 if reader.job.objective == "rloo" and usual is not LEAVE else usual


def set_vllm(reader: Reader, section: str = "", note: str = "") -> None:
    """vLLM beside the trainer, by two keys below a section: a `server` unless they or the defaults say otherwise."""
    used, mode = reader.on(f"{section}use_vllm"), reader.given(TEXT, f"{section}vllm_mode")
    if used is None:
        reader.default("rl.vllm", None)
    elif mode:
        reader.set("rl.vllm", mode)
    else:
        usual = reader.defaults.get("vllm_mode", "server")
        reader.set("rl.vllm", used, usual, note or f"default vllm_mode of {reader.upstream}")


def _set_reference(reader: Reader) -> None:
    """A reference model is a second frozen copy of the weights: DPO and KTO keep one in a full fine-tune unless its
    log-probabilities are computed beforehand, GRPO and RLOO when `beta` is not 0; with an adapter the base model with
    the adapter switched off is the reference.
    """
    job, path, objective = reader.job, "rl.reference_model", str(reader.job.objective)
    if objective in ("dpo", "kto"):
        if job.method != "full":
            reader.derived(path, False, "the base model without its adapter is the reference", "method")
        elif job.rl.precompute_reference:
            reader.derived(path, False, "its log-probabilities are precomputed", "rl.precompute_reference")
        else:
            reader.derived(path, True, f"{objective.upper()} keeps a frozen copy of the model", "objective")
    elif objective in ("grpo", "rloo"):
        beta = reader.given(NUMBER, "beta", "kl_coef")
        value = beta.value if beta else float(reader.defaults.get("grpo_beta", 0.05 if objective == "rloo" else 0.0))
        if value == 0 or job.method != "full":
            reader.derived(path, False, "beta is 0" if value == 0 else "the adapter is switched off instead")
        else:
            usual = f"default beta {value} of {reader.upstream} needs a frozen copy"
            reader.set(path, beta, True, "beta > 0 needs a frozen copy of the model" if beta else usual)
    elif objective == "ppo":
        reader.derived(path, job.method == "full", "PPO compares with the starting model", "objective")
        reader.bind((Key("rl.reward_model", ("reward_model_path", "reward_model"), TEXT),))
    else:
        reader.derived(path, False, f"{objective} has no reference model", "objective")


RL: tuple[Row, ...] = (
    *only(
        _is(*ONLINE),
        Key("rl.generations", ("num_generations", "rloo_k"), POSITIVE, _generations, back=NEVER),
        Key(
            "rl.completion_length", ("max_completion_length", "response_length"), POSITIVE,
            _or_later("max_completion_length"), back=NEVER,
        ),
        set_vllm,
        *only(
            lambda job: job.rl.vllm is not None,
            Key(
                "rl.vllm_gpu_memory_utilization", "vllm_gpu_memory_utilization", NUMBER,
                lambda reader: reader.defaults.get("vllm_gpu_memory_utilization"),
            ),
            Key("rl.vllm_sleep", "vllm_enable_sleep_mode", FLAG, default=False),
        ),
    ),
    Key(
        "rl.prompt_length", "max_prompt_length", POSITIVE, _usual_length("max_prompt_length"), back=NEVER,
        when=_is(*PREFERENCE, "grpo"),
    ),
    Key(
        "rl.precompute_reference", "precompute_ref_log_probs", FLAG,
        lambda reader: bool(reader.defaults.get("precompute_reference", False)), when=_is("dpo", "kto"),
    ),
    _set_reference,
)  # fmt: skip
"""`rl.*`: lengths, generations, reference model, colocated vLLM."""

SAMPLING_RATE = 16000
"""Samples a second that Wav2Vec2's and HuBERT's extractors ask for (Wav2Vec2FeatureExtractor)."""

ASSUMED_PROMPT = 512
"""Prompt tokens where nothing bounds them: the default of `max_prompt_length` while TRL had one (upstream/trl.py)."""

LENGTH_KEYS = (
    "max_source_length", "max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length",
    "model_max_len", "max_sequence_length", "data_max_length", "seq_length", "sequence_length",
)  # fmt: skip


def _set_online_length(reader: Reader) -> None:
    """Prompt and completion together; vLLM's longest sequence bounds both."""
    job, whole = reader.job, reader.given(POSITIVE, "vllm_max_model_length", "vllm_max_model_len")
    completion = job.rl.completion_length or 0
    if job.rl.prompt_length is None and whole and whole.value > completion:
        reader.set("rl.prompt_length", whole, whole.value - completion, f"{whole.key} less the completion")
    elif job.rl.prompt_length is None:
        reader.assumed("rl.prompt_length", ASSUMED_PROMPT, f"prompts are not bounded; {ASSUMED_PROMPT} tokens")
    total = (job.rl.prompt_length or 0) + completion
    reader.derived("sequence_length", total, "prompt and completion", "rl.completion_length")


def _set_source_and_target(reader: Reader) -> None:
    """qlora.py's two lengths."""
    source, target = reader.given(POSITIVE, "source_max_len"), reader.given(POSITIVE, "target_max_len")
    if source and target and not reader.has_set("sequence_length"):
        reader.set("sequence_length", target, source.value + target.value, "source_max_len and target_max_len")


def _set_unbounded(reader: Reader) -> None:
    unbounded, usual = reader.keys.raw("max_length", "max_seq_length"), _usual_length("max_length")(reader)
    if reader.has_set("sequence_length"):
        return
    if unbounded is not None and unbounded.value is None:
        reader.set("sequence_length", unbounded, None, "null: rows are never cut, the longest decides")
    elif usual is not LEAVE:
        reader.default("sequence_length", usual)
    else:
        reader.assumed("sequence_length", None, "no key bounds the length of a row")


def _usual_target(reader: Reader) -> Any:
    longest = reader.defaults.get("longest_target")
    note = "labels are not cut: the most that the decoder has positions for"
    return Assumed(longest, note) if longest is not None else reader.defaults.get("max_target_length")


def _set_frozen_features(reader: Reader) -> None:
    """Whether the convolutions over samples are trained."""
    frozen, pattern = reader.given(FLAG, "freeze_feature_encoder"), [r"^(?!.*feature_extractor\.)"]
    if frozen.value if frozen else reader.defaults.get("freeze_features"):
        reader.set("trainable", frozen, pattern, "the feature encoder is frozen" if frozen else "")


def _samples(seconds: float, _job: Job) -> int:
    return round(seconds * SAMPLING_RATE)


LENGTHS: tuple[Row, ...] = (
    *only(_is(*ONLINE), _set_online_length),
    *only(
        _is("ctc"),
        Key(
            "sequence_length", "max_duration_in_seconds", NUMBER,
            lambda reader: _samples(reader.defaults["max_duration"], reader.job), _samples, NEVER,
            note=f"max_duration_in_seconds at {SAMPLING_RATE} samples a second",
        ),
        _set_frozen_features,
    ),
    *only(
        _is("seq2seq"),
        Key(
            "trainable", "freeze_encoder", FLAG, to={True: [r"^(?!model\.encoder\.)"]}, back=NEVER,
            note="the encoder is frozen",
        ),
        Key("target_length", "max_target_length", POSITIVE, _usual_target, back=NEVER),
    ),
    *only(
        lambda job: job.objective not in (*ONLINE, "ctc"),
        Key("sequence_length", LENGTH_KEYS, POSITIVE),
        _set_source_and_target,
        _set_unbounded,
    ),
)  # fmt: skip
"""`sequence_length`: prompt and completion together for online trainers, else the longest row; what a decoder reads."""
