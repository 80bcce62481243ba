"""TRL."""

from __future__ import annotations

from .behaviour import Behaviour, BehaviourByType, Default, since

NAME = "trl"

ROW_BY_ROW = Behaviour(
    NAME,
    "has preference trainers take log-probabilities row by row; before, the log-softmax of all logits at once",
    "trainer/utils.py `selective_log_softmax`",
    since="0.15",
)
KERNEL = Behaviour(
    NAME,
    "has a Triton kernel read log-probabilities, and entropies with them, off the logits",
    "trl/kernels/logprob_entropy.py, which torch's CUDA wheels can run",
    since="1.14",
)
TILES = Behaviour(
    NAME,
    "makes logits in tiles, so that nothing holds all of them",
    "trl/kernels",
    since="1.15",
)
ENTROPIES = BehaviourByType(
    NAME,
    "has the trainer of an objective log entropies of the policy's logits, and DPO's and KTO's the means of wanted and"
    " unwanted ones",
    "the trainers' `entropy_from_logits`",
    types=since({"0.20": "grpo", "0.22": "sft rloo", "0.29": "dpo", "1.8": "kto"}),
)
TEMPERATURE = Behaviour(
    NAME,
    "has online trainers divide the logits by the temperature",
    "trainer/grpo_trainer.py",
    since="0.16",
)
DIVIDES_IN_PLACE = Behaviour(
    NAME,
    "divides them in their own bytes (`div_`)",
    "trainer/grpo_trainer.py",
    since="1.0",
    until="1.10",
)
NAMES_LOGITS = Behaviour(
    NAME,
    "divides them beside those that the model returned, which have a name",
    "trainer/grpo_trainer.py",
    since="1.10",
)
REFERENCE_APART = Behaviour(
    NAME,
    "has DPO and KTO load the reference as a model of its own and name the policy's outputs while it runs; before, it"
    " was a frozen copy, and the logits were gone with `concatenated_forward`",
    "`create_model_from_path`, `_compute_loss`; before, `create_reference_model`",
    since="0.29",
)
FUSED_EVALUATION = Behaviour(
    NAME,
    "asks Liger's models to skip the logits in an evaluation",
    "trainer/sft_trainer.py `compute_loss`",
    since="0.29",
)
REFUSES_DATA_PARALLEL = Behaviour(
    NAME,
    "refuses several GPUs in one process",
    "the trainers' test of `args.n_gpu > 1` in 1.16, where those of 1.9 have none",
    since="1.10",
)
SAMPLES_GROUPS = Behaviour(
    NAME,
    "draws the completions of a prompt over the batch of all processes, which whole groups have to fill",
    "trainer/grpo_trainer.py 0.15.2; 0.14.0 draws them within each process",
    since="0.15",
)
GROUPS_FILL_STEPS = Behaviour(
    NAME,
    "has groups of completions fill the micro batches of a step together; before, each micro batch of all processes",
    "trainer/grpo_trainer.py 0.16.1 and 0.17.0",
    since="0.17",
)
AS_TRANSFORMERS = "transformers"
"""A default that is what Transformers takes."""

_CONFIGS = "trainer/*_config.py of the wheels 0.8.6 to 1.16.0"
_TRAINERS = "sft_trainer.py and dpo_trainer.py of the wheels 0.8.6 to 1.16.0"

DEFAULTS = (
    Default(NAME, "max_length", {"sft": 1024, "": 512}, _CONFIGS, until="0.12"),
    Default(NAME, "max_length", {"sft": 1024, "dpo": None, "": 512}, _CONFIGS, since="0.12", until="0.14"),
    Default(NAME, "max_prompt_length", {"": 128}, _CONFIGS, until="0.12"),
    Default(NAME, "max_prompt_length", {"dpo": None, "grpo": 512, "": 128}, _CONFIGS, since="0.12", until="0.14"),
    Default(NAME, "max_prompt_length", 512, _CONFIGS, since="0.14", until="0.26"),
    Default(NAME, "bf16", False, _CONFIGS, until="0.19"),
    Default(NAME, "grpo_beta", 0.04, _CONFIGS, until="0.19"),
    Default(NAME, "gradient_checkpointing", False, _CONFIGS, until="0.22"),
    Default(NAME, "prepare_kbit", "8bit", _TRAINERS, until="0.22"),
    Default(NAME, "dtype", AS_TRANSFORMERS, _TRAINERS, until="0.27"),
    Default(NAME, "vllm_mode", "server", _CONFIGS, until="1.0"),
    Default(NAME, "max_completion_length", 256, _CONFIGS, until="1.10"),
    Default(NAME, "loss", "torch", _CONFIGS, until="1.15"),
)
"""A length by objective has an empty name for those not named."""

PINS = (
    Default(NAME, "transformers", "4.57.1", "the last 4: these never ran on 5 (wheels 0.8.6 to 1.16.0)", until="0.27"),
)
"""Packages that a release brings in a release of their own, where nothing states that."""
