"""Facts about the batches of online reinforcement learning: prompts, completions, and the ranks that share them."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.core.backends.megatron import is_megatron
from ...upstream.rl import verl
from ..expression import UNKNOWN
from .facts import Facts, fact

if TYPE_CHECKING:
    from ...upstream.behaviour import Behaviour


class _Batches(NamedTuple):
    """How a tool cuts its batches.

    `prompts` and `mini` are keys, newest first, of the prompts of a step and of a step of the optimizer; the numbers
    are what it takes where a command says none. What is refused, in all releases or by the behaviour of some: `equal`,
    rows of a step that the ranks cannot share equally; `spread`, such rows of a mini batch; `whole`, a step that is no
    multiple of its mini batches. `cut`: prompts whose completions the ranks cannot share equally are left out.
    """

    prompts: tuple[str, ...] = ()
    usual_prompts: int | None = None
    mini: tuple[str, ...] = ()
    usual_mini: int | None = None
    equal: Behaviour | bool = False
    spread: Behaviour | bool = False
    whole: Behaviour | bool = False
    cut: bool = False


_TOOLS = {
    "verl": _Batches(
        ("data.train_batch_size",), 1024, ("actor_rollout_ref.actor.ppo_mini_batch_size",), 256, equal=True,
        spread=verl.WHOLE_MINI_BATCHES, whole=verl.WHOLE_MINI_BATCHES,
    ),
    "skyrl": _Batches(("trainer.train_batch_size",), None, ("trainer.policy_mini_batch_size",), whole=True, cut=True),
    "nemo_rl": _Batches(("grpo.num_prompts_per_step", "ppo.num_prompts_per_step"), equal=True),
    "openrlhf": _Batches(("rollout.batch_size", "rollout_batch_size")),
    "slime": _Batches(("rollout-batch-size", "rollout_batch_size")),
}  # fmt: skip
"""Format -> its batches. verl 0.9.1 `trainer/ppo/ray_trainer.py` (`_balance_batch`), SkyRL 0.3
`train/utils/utils.py` `validate_batch_sizes`, NeMo RL 0.7 `distributed/batched_data_dict.py`."""

_OWN_CONFIG = ("config-name", "config_name", "config-path", "config_path", "config")


def _size(facts: Facts, keys: tuple[str, ...], usual: int | None) -> int | None:
    """The first of the keys that is written; the tool's own number where a command is all there is."""
    for key in keys:
        if facts.has(f"config.{key}"):
            value = facts.get(f"config.{key}")
            return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
    document = facts.reading.config
    whole = document.syntax == "flags" and not any(facts.has(f"config.{key}") for key in _OWN_CONFIG)
    return usual if whole else None


def _batches(facts: Facts) -> _Batches:
    return _TOOLS.get(facts.reading.format, _Batches())


def _refused(facts: Facts, what: Behaviour | bool) -> bool:
    return what if isinstance(what, bool) else what.at(facts.job.versions.get(what.package))


@fact("rollout.prompts", type="whole number")
def _prompts(facts: Facts) -> Any:
    """Prompts of a step of an online RL trainer."""
    batches = _batches(facts)
    return _size(facts, batches.prompts, batches.usual_prompts) or UNKNOWN


@fact("rollout.rows", type="whole number")
def _rows(facts: Facts) -> Any:
    """Completions of a step: its prompts x the completions of each."""
    prompts = facts.get("rollout.prompts")
    return prompts * facts.job.rl.generations if isinstance(prompts, int) and facts.job.rl.generations else UNKNOWN


@fact("rollout.parts", type="whole number")
def _parts(facts: Facts) -> Any:
    """What the completions of a step have to be a multiple of, where the trainer refuses a rest: the replicas; in verl
    all GPUs of FSDP, and with Megatron a micro batch on each replica, unless it packs by tokens."""
    job, replicas = facts.job, facts.get("replicas")
    if not isinstance(replicas, int) or not _refused(facts, _batches(facts).equal):
        return UNKNOWN
    if facts.reading.format != "verl" or facts.get("config.actor_rollout_ref.actor.use_dynamic_bsz") is True:
        return replicas
    return replicas * (job.micro_batch_size or 1) if is_megatron(job) else job.hardware.gpus


@fact("rollout.stride", type="whole number")
def _stride(facts: Facts) -> Any:
    """Prompts of which the trainer keeps a multiple of a step, leaving out the rest: the replicas over what they have
    in common with the completions of a prompt."""
    replicas, each = facts.get("replicas"), facts.job.rl.generations
    if not isinstance(replicas, int) or not each or not _batches(facts).cut:
        return UNKNOWN
    return replicas // gcd(replicas, each)


@fact("mini_batch.prompts", type="whole number")
def _mini_batch(facts: Facts) -> Any:
    """Prompts of a mini batch of an online RL trainer that spreads it over the ranks."""
    batches = _batches(facts)
    return _size(facts, batches.mini, batches.usual_mini) or UNKNOWN


@fact("mini_batch.rows", type="whole number")
def _mini_batch_rows(facts: Facts) -> Any:
    """Completions of a mini batch: its prompts x the completions of each."""
    prompts = facts.get("mini_batch.prompts")
    return prompts * facts.job.rl.generations if isinstance(prompts, int) and facts.job.rl.generations else UNKNOWN


@fact("mini_batch.spread", type="true or false")
def _mini_batch_spread(facts: Facts) -> Any:
    """Whether the trainer refuses completions of a mini batch that the ranks cannot share equally."""
    return _refused(facts, _batches(facts).spread)


@fact("mini_batch.whole", type="true or false")
def _mini_batch_whole(facts: Facts) -> Any:
    """Whether the trainer refuses a step that is no multiple of its mini batches."""
    return _refused(facts, _batches(facts).whole)


@fact("mini_batch.rows_per_rank", type="whole number")
def _mini_rows(facts: Facts) -> Any:
    """Completions of a mini batch on a rank, rounded down as the trainer does."""
    rows, replicas = facts.get("mini_batch.rows"), facts.get("replicas")
    return rows // replicas if isinstance(rows, int) and isinstance(replicas, int) else UNKNOWN
