"""NeMo RL configs: a policy trained with DTensor (NeMo Automodel) or Megatron, and an engine that generates beside it.

Facts from nemo_rl 0.6.0 (`models/policy/__init__.py`, `models/automodel/setup.py`, `models/megatron/setup.py`,
`algorithms/*.py`, `utils/config.py`), read statically. A config names the one that it builds on in `defaults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.rollout import VALIDATION_GENERATES, generation
from ..core.bindings.kinds import POSITIVE
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Derived, Fixed, Key, Table, only
from ..core.format import Format, Reading
from ..core.inheritance import inherited
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from .rl_policy import DEGREES, POLICY, batch_keys, checkpointing_keys, method_keys, offload_keys, set_framework
from .rl_rollout import GENERATION, set_gpus, share_keys

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "nemo_rl"
UPSTREAM = "nemo_rl 0.6.0"

_EVALUATION = generation(
    model="generation.model_name", engine="generation.vllm_cfg", tensor="tensor_parallel_size", dtype="precision",
    gpus="cluster.gpus_per_node", nodes="cluster.num_nodes",
)  # fmt: skip

_OBJECTIVES = {
    "grpo": "grpo", "ppo": "ppo", "dpo": "dpo", "rm": "reward", "sft": "sft", "distillation": "distillation",
    "on_policy_distillation": "distillation",
}  # fmt: skip
"""The section of an algorithm -> the Job's objective, in the order in which they decide."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a run: training the policy, with the engine's share of the same GPUs."""
    whole = inherited(document, project, NAME)
    filled = interpolated(whole.document._replace(text=whole.document.text + "${"))
    reader = Reader(filled, project, NAME, UPSTREAM, checked=document)
    reader.reading.references.update(whole.references)
    if reader.keys.raw("policy") is None and reader.keys.raw("generation.vllm_cfg") is not None:
        reader.bind(_EVALUATION)
        return reader.reading
    usual = {"nemo_rl": UPSTREAM.split()[1], "vllm": "0.20.0"}
    reader.versions(usual, project.versions, f"what {UPSTREAM} runs on")
    reader.bind(TABLE.rows)
    reader.reading.problems = whole.problems + key_problems(document, NAME, known=("config",))
    return reader.reading


def _set_objective(reader: Reader) -> None:
    """The algorithm whose section the file has: `grpo`, `dpo` ..."""
    for name, objective in _OBJECTIVES.items():
        given = reader.keys.raw(name)
        if given is not None and given.entry.value.is_mapping:
            reader.set("objective", given, objective)
            return
    reader.assumed("objective", "sft", "no section of an algorithm; supervised fine-tuning")


TABLE = Table(
    (
        Fixed("kind", Derived("training", "a training config")),
        _set_objective,
        set_framework,
        set_gpus,
        *DEGREES,
        *POLICY,
        *GENERATION,
        *only(
            lambda job: job.objective in ("sft", "dpo", "reward"),
            Key(
                "evaluation.micro_batch_size",
                tuple(f"{name}.val_micro_batch_size" for name in ("sft", "dpo", "rm")), POSITIVE,
                adds=False,
            ),
            Fixed(
                "evaluation.keeps_logits", Derived(False, "only the loss is kept"),
                when=lambda job: job.evaluation.micro_batch_size is not None,
            ),
        ),
        VALIDATION_GENERATES,
    ),
    says={
        "activation_checkpointing": checkpointing_keys,
        "method": method_keys,
        "micro_batch_size": batch_keys,
        "parallelism.zero.offload_optimizer.device": offload_keys,
        "rl.vllm_gpu_memory_utilization": share_keys,
    },
    total="policy.train_global_batch_size",
)  # fmt: skip

FORMAT = Format.of_table(NAME, "NeMo RL config", UPSTREAM, read, TABLE, "`cluster.gpus_per_node` x `cluster.num_nodes`")
