"""AReaL: the YAML of its trainers for SFT, rewards, DPO and asynchronous RL, with FSDP2, Megatron or Archon.

Facts from AReaL 1.0.4 (`api/cli_args.py`, `api/alloc_mode.py`, `engine/fsdp_engine.py`, `engine/megatron_engine.py`,
`trainer/rl_trainer.py`), read statically; `allocation_mode` is that of releases before 1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import FLAG, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Assumed, Key, Table
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Moved, moved
from ..core.typos import slip
from ..core.world_size import Stated, set_hardware
from .areal_allocation import ALLOCATIONS, ALONE, plan_of
from .areal_batches import BATCHES, ROLLOUT, is_section, length_keys
from .areal_engine import ENGINE, checkpointing_keys, method_keys

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "areal"
UPSTREAM = "AReaL 1.0.4"
VERSIONS = {"transformers": "5.3.0", "peft": "0.18.1"}
"""The newest that its pyproject.toml allows."""

_SECTIONS = ("actor", "model")
"""The model that is trained; SFT called it `model` until 0.4."""


def read(document: Document, project: Project) -> Reading:
    """The Job of what is trained. Raises NoJobError where nothing is."""
    filled = interpolated(document)
    section = _section(document)
    reader = Reader(filled, project, NAME, UPSTREAM, checked=document, keys=Moved(filled.root, {"actor": section}))
    reader.derived("kind", "training", f"`{section}` is trained")
    reader.bind(TABLE.rows)
    reader.reading.problems = _key_problems(document)
    return reader.reading


def _section(document: Document) -> str:
    """The section of what is trained. Raises NoJobError without one."""
    for name in _SECTIONS:
        found = document.root.get(name)
        if found is not None and found.is_mapping:
            return name
    raise NoJobError(document.path, "no `actor`: nothing is trained")


def _set_objective(reader: Reader) -> None:
    """By the sections: a rollout makes it RL, a critic PPO, a reference without a rollout DPO, else the data's type."""
    kind, critic = reader.given(TEXT, "train_dataset.type"), reader.given(FLAG, "actor.is_critic")
    rewards = critic if critic and critic.value else kind if kind and kind.value == "rw" else None
    if is_section(reader, "rollout") or is_section(reader, "gconfig"):
        ppo = is_section(reader, "critic")
        reader.derived("objective", "ppo" if ppo else "grpo", f"a rollout {'and' if ppo else 'without'} a critic")
    elif is_section(reader, "ref"):
        reader.derived("objective", "dpo", "`ref` without a rollout")
    elif rewards:
        reader.set("objective", rewards, "reward")
    else:
        reader.derived("objective", "sft", f"`{_section(reader.document)}` alone")


def _set_sizes(reader: Reader) -> None:
    """The GPUs that train, and the degrees between them; a server has GPUs of its own.

    The degrees that the config states hold whatever the cluster has: more GPUs are the server's.
    """
    given, plan = reader.given(TEXT, *ALLOCATIONS), plan_of(reader)
    said = given if plan is not ALONE else None
    stated = Stated(plan.gpus, said.entry, said.key, "what trains", group=True) if said else None
    set_hardware(reader, reader.project, stated, sharded=True)
    each, gpus = reader.given(POSITIVE, "cluster.n_gpus_per_node"), reader.job.hardware.gpus or 1
    if each and gpus > each.value and reader.project.nodes is None:
        reader.set("hardware.nodes", each, -(-gpus // each.value), "GPUs that train over those of a node")
    for name in ("tensor", "pipeline", "context", "expert", "expert_tensor", "data"):
        value = getattr(plan, name)
        if said and value is not None:
            reader.set(f"parallelism.{name}", said, value)
        elif name != "data":
            reader.default(f"parallelism.{name}", value)
    reader.default("parallelism.sequence", plan.tensor > 1, "sequence parallel over tensor ranks")
    if plan.backend == "megatron":
        reader.derived("framework", "megatron", "backend megatron")
    reader.versions(VERSIONS, reader.project.versions, f"what {UPSTREAM} runs on")


TABLE = Table(
    (
        _set_objective,
        Key("model", "actor.path", TEXT, Assumed(None, "no key names the model")),
        _set_sizes,
        *ENGINE,
        *BATCHES,
        *ROLLOUT,
    ),
    says={
        "activation_checkpointing": checkpointing_keys,
        "method": method_keys,
        "rl.reference_model": lambda _, stays: None if stays else {"ref.offload": True},
        "sequence_length": length_keys,
    },
    ignored=frozenset({"gradient_accumulation_steps"}),
    spelled=lambda reading, key: moved(key, {"actor": _section(reading.config)}),
)


def _key_problems(document: Document) -> list[Problem]:
    """Unknown keys. A workflow's own config adds sections at the top: there only a slip of a known one is reported."""
    found = key_problems(document, NAME, known=("config",))
    return [
        item
        for item in found
        if item.kind != "unknown-key" or "." in item.key or slip(item.key, item.values["suggestion"] or "?")
    ]


FORMAT = Format.of_table(NAME, "AReaL config", UPSTREAM, read, TABLE, "degrees of `actor.backend` or `allocation_mode`")
