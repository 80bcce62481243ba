"""verl: hydra YAML, and `python -m verl.trainer.main_ppo key=value`; actor, rollout, reference and critic share GPUs.

Facts from verl 0.10.0.dev (`trainer/config/_generated_ppo_*trainer.yaml`, `workers/config/*.py`,
`workers/engine/fsdp/transformer_impl.py`, `workers/engine_workers.py`), read statically. What a file or a command does
not say is as the trainer's own config has it (`verl_shipped.json`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import verl
from ...upstream.behaviour import former_defaults
from ..core.format import Format, JobBuilder, NoJobError, Reading, written_by
from ..core.inheritance import based_on
from ..core.interpolation import interpolated
from ..core.rollout import RolloutKeys, set_rollout_job
from ..core.sections import Filling, Sections
from .actor import set_actor
from .filling import VerlFilling
from .keys import verl_problems
from .rollout import set_others, set_rollout
from .sizes import set_sizes

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "verl"
UPSTREAM = "verl 0.10.0.dev"

FSDP = "verl/trainer/config/ppo_trainer.yaml"
MEGATRON = "verl/trainer/config/ppo_megatron_trainer.yaml"
"""The shipped configs, put together as hydra does it."""


def recognise(document: Document) -> bool:
    """A file with `actor_rollout_ref`, or a `rollout` beside `model.path`; a part says so in its `_target_`."""
    root = document.root
    actor = root.get("actor_rollout_ref")
    if actor is not None:
        return actor.is_mapping
    if root.find("rollout.tensor_model_parallel_size") is not None and root.find("model.path") is not None:
        return True
    target = root.get("_target_")
    return target is not None and str(target.value).startswith("verl.")


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for a part of a config."""
    if document.root.find("model.path") is not None and document.root.get("rollout") is not None:
        return _generation(document, project)
    if document.root.get("actor_rollout_ref") is None and document.syntax != "flags":
        raise NoJobError(document.path, "a part of verl's config, which ppo_trainer.yaml puts together")
    former = former_defaults(verl.DEFAULTS, project.versions.get(verl.NAME))
    base = based_on(document, NAME, _base_name(document), former)
    filled = interpolated(base.document._replace(text=base.document.text + "${"))
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    values = Sections(filled.root)
    filling = VerlFilling(builder, base.path)
    builder.derived("kind", "training", "a training config")
    usual = {"verl": UPSTREAM.split()[1], "transformers": "5.5.0", "vllm": "0.21.0"}
    builder.versions(usual, project.versions, f"what {UPSTREAM} runs on")
    estimator = values.text("algorithm.adv_estimator")
    critic = values.flag("critic.enable")
    trained = critic.value if critic else estimator is None or estimator.value == "gae"
    if estimator:
        filling.put("objective", estimator, "ppo" if trained else "rloo" if estimator.value == "rloo" else "grpo")
    else:
        builder.default("objective", "ppo")
    set_sizes(filling, values, project)
    set_actor(filling, values)
    set_rollout(filling, values)
    set_others(filling, values)
    builder.default("evaluation.micro_batch_size", None, "validation generates; it keeps nothing for a backward pass")
    reading.problems = verl_problems(document, NAME)
    return reading


def _generation(document: Document, project: Project) -> Reading:
    """A run of main_generation.py, which answers the prompts of a file."""
    filled = interpolated(document)
    builder = JobBuilder(filled, UPSTREAM)
    keys = RolloutKeys("model.path", "rollout", "tensor_model_parallel_size", "dtype", *_GPUS)
    set_rollout_job(Filling(builder), Sections(filled.root), project, keys)
    return Reading(NAME, UPSTREAM, document, builder.job)


_GPUS = ("trainer.n_gpus_per_node", "trainer.nnodes")


def _base_name(document: Document) -> str:
    """The shipped config under this one: Megatron's where the file or the command asks for it."""
    root = document.root
    for key in ("config-name", "config_name"):
        named = root.get(key)
        if named is not None and "megatron" in str(named.value):
            return MEGATRON
    defaults = root.get("defaults")
    names = defaults.plain() if defaults is not None else []
    strategy = root.find("actor_rollout_ref.actor.strategy")
    asked = isinstance(names, list) and any("megatron" in str(name) for name in names)
    if asked or (strategy is not None and strategy.value.value == "megatron"):
        return MEGATRON
    return FSDP


describe, edits = written_by("verl.edits")


FORMAT = Format(
    NAME, "verl config", UPSTREAM, recognise, read, describe, edits, "`trainer.n_gpus_per_node` x `trainer.nnodes`"
)
