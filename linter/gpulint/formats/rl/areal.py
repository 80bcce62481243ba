"""AReaL: the YAML of its trainers for SFT, rewards, DPO and asynchronous RL, with FSDP2, Megatron or Archon.

Facts from AReaL 1.0.4 (`api/cli_args.py`, `api/alloc_mode.py`, `engine/fsdp_engine.py`, `engine/megatron_engine.py`,
`trainer/rl_trainer.py`), read statically; `allocation_mode` is that of releases before 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.format import Format, JobBuilder, NoJobError, Problem, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Filling, Sections
from ..core.typos import slip
from ..core.world_size import Stated, set_hardware
from .areal_allocation import Allocation, training_part
from .areal_batches import set_batches, set_rollout
from .areal_engine import set_engine

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "areal"
UPSTREAM = "AReaL 1.0.4"
VERSIONS = {"transformers": "5.3.0", "peft": "0.18.1"}
"""The newest that its pyproject.toml allows."""

_SECTIONS = ("actor", "model")
"""The model that is trained; SFT called it `model` until 0.4."""


def recognise(document: Document) -> bool:
    """YAML with an `actor` (once `model`) of AReaL's beside its cluster or its allocation; not those of realhf."""
    root = document.root
    if document.syntax not in ("yaml", "flags") or root.get("actor_rollout_ref") is not None:
        return False
    if not {"cluster", "allocation_mode", "experiment_name"} & set(root.keys()):
        return False
    for name in _SECTIONS:
        section = root.get(name)
        if section is not None and section.is_mapping and section.entry("path") is not None:
            return section.entry("type") is None and any(
                section.entry(key) is not None for key in ("mb_spec", "backend", "optimizer", "fsdp")
            )
    return document.syntax == "flags"


def read(document: Document, project: Project) -> Reading:
    """The Job of what is trained. Raises NoJobError where nothing is."""
    filled = interpolated(document)
    values = Sections(filled.root)
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    filling = Filling(builder)
    section = next((name for name in _SECTIONS if values.is_mapping(name)), "")
    if not section:
        raise NoJobError(document.path, "no `actor`: nothing is trained")
    builder.derived("kind", "training", f"`{section}` is trained")
    builder.versions(VERSIONS, project.versions, f"what {UPSTREAM} runs on")
    _set_objective(filling, values, section)
    model = values.text(f"{section}.path")
    if model:
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    plan = _set_sizes(filling, values, section, project)
    set_engine(filling, values, section, plan.backend)
    set_batches(filling, values, section)
    set_rollout(filling, values, section, shared=plan.shared)
    builder.default("evaluation.micro_batch_size", None, "it generates, or scores without a backward pass")
    reading.problems = _key_problems(document)
    return reading


def _set_objective(filling: Filling, values: Sections, section: str) -> None:
    """By the sections: a rollout makes it RL, a critic PPO, a reference without a rollout DPO, else the data's type."""
    builder = filling.builder
    kind, critic = values.text("train_dataset.type"), values.flag(f"{section}.is_critic")
    if values.is_mapping("rollout") or values.is_mapping("gconfig"):
        name = "ppo" if values.is_mapping("critic") else "grpo"
        builder.derived("objective", name, "a rollout" + (" and a critic" if name == "ppo" else " without a critic"))
    elif values.is_mapping("ref"):
        builder.derived("objective", "dpo", "`ref` without a rollout")
    elif (kind and kind.value == "rw") or (critic and critic.value):
        given = critic if critic and critic.value else kind
        assert given is not None
        filling.put("objective", given, "reward")
    else:
        builder.derived("objective", "sft", f"`{section}` alone")


_ALONE = Allocation("fsdp", 1, 1, 1, 1, 1, None, False)


def _set_sizes(filling: Filling, values: Sections, section: str, project: Project) -> Allocation:
    """The GPUs that train, and the degrees between them; a server has GPUs of its own.

    The degrees that the config states hold whatever the cluster has: more GPUs are the server's.
    """
    builder = filling.builder
    given = values.text(f"{section}.backend") or values.text("allocation_mode")
    plan = training_part(given.value) if given else None
    stated = Stated(plan.gpus, given.entry, given.key, "what trains") if plan and given else None
    set_hardware(builder, project, stated, sharded=True)
    each = values.integer("cluster.n_gpus_per_node", least=1)
    gpus = builder.job.hardware.gpus or 1
    if each and gpus > each.value and project.nodes is None:
        filling.put("hardware.nodes", each, -(-gpus // each.value), "GPUs that train over those of a node")
    for name in ("tensor", "pipeline", "context", "expert", "expert_tensor"):
        value = getattr(plan, name) if plan else None if name == "expert_tensor" else 1
        _put(filling, f"parallelism.{name}", given if plan else None, value)
    if plan and given:
        _put(filling, "parallelism.data", given, plan.data)
    builder.default("parallelism.sequence", bool(plan and plan.tensor > 1), "sequence parallel over tensor ranks")
    return plan or _ALONE


def _put(filling: Filling, path: str, given: Given | None, value: Any) -> None:
    if given is None or value is None:
        filling.builder.default(path, value)
    else:
        filling.builder.from_entry(path, value, given.entry, given.key)


def _key_problems(document: Document) -> list[Problem]:
    """Unknown keys. A workflow's own config adds sections at the top: there only a slip of a known one is reported."""
    found = key_problems(document, NAME, known=("config",))
    return [
        item
        for item in found
        if item.kind != "unknown-key" or "." in item.key or slip(item.key, item.values["suggestion"] or "?")
    ]


describe, edits = written_by("rl.areal_edits")


FORMAT = Format(
    NAME, "AReaL config", UPSTREAM, recognise, read, describe, edits, "degrees of `actor.backend` or `allocation_mode`"
)
