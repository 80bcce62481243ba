"""NeMo RL configs: a policy trained with DTensor (NeMo Automodel) or Megatron, and an engine that generates beside it.

Facts from nemo_rl 0.6.0 (`models/policy/__init__.py`, `models/automodel/setup.py`, `models/megatron/setup.py`,
`algorithms/*.py`, `utils/config.py`), read statically. A config names the one that it builds on in `defaults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, JobBuilder, Reading, written_by
from ..core.inheritance import inherited
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.rollout import RolloutKeys, set_rollout_job
from ..core.sections import Filling, Sections
from .rl_policy import set_policy
from .rl_rollout import set_generation, set_hardware_of_training

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "nemo_rl"
UPSTREAM = "nemo_rl 0.6.0"

_EVALUATION = RolloutKeys(
    "generation.model_name", "generation.vllm_cfg", "tensor_parallel_size", "precision",
    "cluster.gpus_per_node", "cluster.num_nodes",
)  # fmt: skip

_OBJECTIVES = {
    "grpo": "grpo", "ppo": "ppo", "dpo": "dpo", "rm": "reward", "sft": "sft", "distillation": "distillation",
    "on_policy_distillation": "distillation",
}  # fmt: skip
"""The section of an algorithm -> the Job's objective, in the order in which they decide."""

_SIGNS = frozenset(
    {
        "train_global_batch_size", "train_micro_batch_size", "max_total_sequence_length", "dtensor_cfg", "megatron_cfg",
        "generation", "logprob_batch_size", "make_sequence_length_divisible_by", "sequence_packing",
    }
)  # fmt: skip
"""Keys of `policy`, of which its files have at least one."""


def recognise(document: Document) -> bool:
    """A `policy` with NeMo RL's keys, or `generation.vllm_cfg` of an evaluation; a short file names its `defaults`."""
    root = document.root
    policy = root.get("policy")
    if document.syntax not in ("yaml", "flags"):
        return False
    if policy is None:
        short = root.get("defaults")
        based = short is not None and str(short.value).endswith((".yaml", ".yml"))
        sized = root.find("cluster.gpus_per_node") is not None
        return root.find("generation.vllm_cfg") is not None or (based and (sized or root.get("generation") is not None))
    if not policy.is_mapping:
        return False
    return not _SIGNS.isdisjoint(policy.keys()) or (
        "model_name" in set(policy.keys()) and document.root.entry("defaults") is not None
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of a run: training the policy, with the engine's share of the same GPUs."""
    whole = inherited(document, project, NAME)
    filled = interpolated(whole.document._replace(text=whole.document.text + "${"))
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    reading.references.update(whole.references)
    values = Sections(filled.root)
    filling = Filling(builder)
    if values.raw("policy") is None and values.raw("generation.vllm_cfg") is not None:
        set_rollout_job(filling, values, project, _EVALUATION)
        return reading
    builder.derived("kind", "training", "a training config")
    usual = {"nemo_rl": UPSTREAM.split()[1], "vllm": "0.20.0"}
    builder.versions(usual, project.versions, f"what {UPSTREAM} runs on")
    objective = _set_objective(filling, values)
    set_hardware_of_training(filling, values, project)
    set_policy(filling, values)
    set_generation(filling, values, objective)
    builder.default("evaluation.micro_batch_size", None, "validation generates; it keeps nothing for a backward pass")
    if objective in ("sft", "dpo", "reward"):
        batch = values.integer(*(f"{name}.val_micro_batch_size" for name in ("sft", "dpo", "rm")), least=1)
        if batch:
            filling.put("evaluation.micro_batch_size", batch)
            builder.derived("evaluation.keeps_logits", False, "only the loss is kept")
    reading.problems = whole.problems + key_problems(document, NAME, known=("config",))
    return reading


def _set_objective(filling: Filling, values: Sections) -> str:
    """The algorithm whose section the file has: `grpo`, `dpo` ..."""
    for name, objective in _OBJECTIVES.items():
        given = values.raw(name)
        if given is not None and given.entry.value.is_mapping:
            filling.put("objective", given, objective)
            return objective
    filling.builder.assumed("objective", "sft", "no section of an algorithm; supervised fine-tuning")
    return "sft"


describe, edits = written_by("nemo.rl_edits")


FORMAT = Format(
    NAME, "NeMo RL config", UPSTREAM, recognise, read, describe, edits, "`cluster.gpus_per_node` x `cluster.num_nodes`"
)
