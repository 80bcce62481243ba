"""verl: hydra YAML, and `python -m verl.trainer.main_ppo key=value`; actor, rollout, reference and critic share GPUs.

Facts from verl 0.10.0.dev (`trainer/config/_generated_ppo_*trainer.yaml`, `workers/config/*.py`,
`workers/engine/fsdp/transformer_impl.py`, `workers/engine_workers.py`), read statically. What a file or a command does
not say is as the trainer's own config has it: that of the repository, else `verl_shipped.json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import former_defaults
from ...upstream.rl import verl
from ..core.backends.rollout import VALIDATION_GENERATES, generation
from ..core.bindings.kinds import FLAG, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Derived, Fixed, Table, Written
from ..core.format import Format, NoJobError, Reading
from ..core.inheritance import based_on
from ..core.interpolation import interpolated
from .actor import ACTOR, SIZES, TRAINING, batch_keys, checkpointing_keys, method_keys, sharding_keys
from .checkout import own_config
from .keys import verl_problems
from .rollout import SHARED, policy_keys, reference_keys

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "verl"
UPSTREAM = "verl 0.10.0.dev"

FSDP = "verl/trainer/config/ppo_trainer.yaml"
MEGATRON = "verl/trainer/config/ppo_megatron_trainer.yaml"
"""The shipped configs, put together as hydra does it."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for a part of a config."""
    if document.root.find("model.path") is not None and document.root.get("rollout") is not None:
        reader = Reader(interpolated(document), project, NAME, UPSTREAM, checked=document)
        reader.bind(_GENERATION)
        return reader.reading
    if document.root.get("actor_rollout_ref") is None and document.syntax != "flags":
        raise NoJobError(document.path, "a part of verl's config, which ppo_trainer.yaml puts together")
    former = former_defaults(verl.DEFAULTS, project.versions.get(verl.NAME))
    usual = _base_name(document)
    own = own_config(document, project, usual)
    base = based_on(document, NAME, usual, former, own)
    filled = interpolated(base.document._replace(text=base.document.text + "${"))
    reader = Reader(filled, project, NAME, UPSTREAM, checked=document, shipped=base.path)
    reader.bind(TABLE.rows)
    reader.reading.problems = verl_problems(document, NAME)
    if own is not None:
        reader.reading.references["config-name"] = own
    return reader.reading


def _set_objective(reader: Reader) -> None:
    usual = {"verl": UPSTREAM.split()[1], "transformers": "5.5.0", "vllm": "0.21.0"}
    reader.versions(usual, reader.project.versions, f"what {UPSTREAM} runs on")
    reader.derived("framework", verl.NAME, "its own steps around Transformers' models")
    estimator = reader.given(TEXT, "algorithm.adv_estimator")
    word = estimator.value if estimator else "gae"
    trained = reader.value(FLAG, "critic.enable", default=word == "gae")
    name = "ppo" if trained or estimator is None else "rloo" if word == "rloo" else "grpo"
    reader.put("objective", Written(name) if estimator else name, estimator)


def _base_name(document: Document) -> str:
    """The shipped config under this one: Megatron's where the file or the command asks for it."""
    root = document.root
    for key in ("config-name", "config_name"):
        named = root.get(key)
        if named is not None and "megatron" in str(named.value):
            return MEGATRON
    defaults = root.get("defaults")
    names = defaults.plain() if defaults is not None else []
    strategy = root.find("actor_rollout_ref.actor.strategy") or root.find("model_engine")
    asked = isinstance(names, list) and any("megatron" in str(name) for name in names)
    if asked or (strategy is not None and strategy.value.value == "megatron"):
        return MEGATRON
    return FSDP


_GENERATION = generation(
    model="model.path", engine="rollout", tensor="tensor_model_parallel_size", dtype="dtype",
    gpus="trainer.n_gpus_per_node", nodes="trainer.nnodes",
)  # fmt: skip
"""A run of main_generation.py, which answers the prompts of a file."""

TABLE = Table(
    (
        Fixed("kind", Derived("training", "a training config")),
        _set_objective,
        *SIZES,
        *TRAINING,
        *SHARED,
        VALIDATION_GENERATES,
    ),
    says={
        "activation_checkpointing": checkpointing_keys,
        "method": method_keys,
        "micro_batch_size": batch_keys,
        "parallelism.fsdp.sharding": sharding_keys,
        "rl.policy_offload": policy_keys,
        "rl.reference_model": reference_keys,
    },
    total=f"{ACTOR}.ppo_mini_batch_size",
)

FORMAT = Format.of_table(NAME, "verl config", UPSTREAM, read, TABLE, "`trainer.n_gpus_per_node` x `trainer.nnodes`")
