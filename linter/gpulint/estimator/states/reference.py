"""Models beside the trained one: reference, reward and value models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..terms import Term
from .gradients import gradient_bytes
from .optimizer import items, of_job, states
from .parameters import allocated, elements, parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.model import Model
    from .parameter import Parameter

WITH_REFERENCE = frozenset({"dpo", "ipo", "kto", "bco", "ppo", "online_dpo", "xpo", "nash_md"})
"""Objectives that compare with a frozen copy of the starting model (TRL 1.16 trainers)."""


def frozen_models(job: Job, model: Model) -> list[Term]:
    """The extra models of a preference or online objective on one rank, in the dtype of the base weights.

    Reference: a copy of the policy for DPO and its kin, PPO, and GRPO with beta > 0 (`rl.reference_model` says so);
    none with an adapter, where TRL turns the adapter off instead, and none when log-probabilities are precomputed.
    PPO also holds a reward model: the one that the job names where that is known, else one of the policy's size without
    the vocabulary head. Its value model starts from the reward model and is trained whole beside the policy, so that it
    brings gradients and optimizer states too, adapter or not (trl/experimental/ppo/ppo_trainer.py,
    `PolicyAndValueWrapper`). A teacher (`rl.teacher`) is whole, adapter or not. Under ZeRO-3 and FSDP each is divided
    over the ranks like the policy (trl/models/utils.py `prepare_deepspeed`, `prepare_fsdp`), otherwise whole on each.
    """
    scored = job.objective == "ppo" and job.rl.value_model != "apart"
    if not needs_reference(job) and not scored and job.rl.teacher is None:
        return []
    stored = replace(
        job, parallelism=replace(job.parallelism, fsdp=None), weights=replace(job.weights, trainable_dtype=None)
    )
    found = [item for item in parameters(stored, model) if item.part in ("base", "buffer")]
    ranks = _ranks(job)
    terms = []
    if job.rl.teacher is not None:
        taught, named = _named(job.rl.teacher, model)
        whole = replace(stored, method="full", adapter=None, trainable=None)
        kept = [item for item in parameters(whole, taught) if item.part in ("base", "buffer")]
        terms.append(_term(kept, f"teacher, {named}", ranks))
    if needs_reference(job):
        terms.append(_term(found, "frozen reference model", ranks))
    if scored:
        scoring, named = _reward_model(job, model)
        of_it = replace(stored, method="full", adapter=None, trainable=None)
        kept = [item for item in parameters(of_it, scoring) if item.part in ("base", "buffer") and item.role != "head"]
        if job.rl.reward_model != "none":
            terms.append(_term(kept, f"reward model, {named}", ranks))
        if job.rl.value_model == "model":
            terms.append(_term(kept, f"value model, {named}", ranks))
            trained = states(items(kept), of_job(job), job).allocated + gradient_bytes(kept, job)
            terms.append(_term(kept, "gradients and optimizer states of the value model", ranks, trained))
    return terms


def _reward_model(job: Job, model: Model) -> tuple[Model, str]:
    """The reward model and where its size is from."""
    return _named(None if job.rl.reward_model == "none" else job.rl.reward_model, model)


def _named(name: str | None, model: Model) -> tuple[Model, str]:
    """A model by its name and where its size is from."""
    from ...models.model import UnknownModel
    from ...models.resolve import resolve

    if name is not None:
        try:
            return resolve(name), name
        except UnknownModel:
            pass
    return model, "taken to be of the policy's size"


def needs_reference(job: Job) -> bool:
    """Whether a frozen reference model stays on the GPU."""
    if job.rl.precompute_reference or job.adapter is not None:
        return False
    if job.rl.reference_model is not None:
        return job.rl.reference_model
    return job.objective in WITH_REFERENCE


def wants_gradients(job: Job) -> bool:
    """Whether the reference's weights want gradients, so that autocast keeps its copies of float32 ones."""
    return job.rl.reference_apart and bool(job.precision.autocast) and needs_reference(job)


def _ranks(job: Job) -> int:
    plan = job.parallelism
    if plan.zero is not None and plan.zero.stage == 3:
        return job.data_parallel
    if plan.fsdp is not None and plan.fsdp.sharding != "no_shard":
        return plan.fsdp.shard_size or job.data_parallel
    return 1


def _term(kept: Sequence[Parameter], label: str, ranks: int, size: int | None = None) -> Term:
    """The line of a model's parameters, or of `size` bytes that go with them."""
    whole, count = allocated(kept) if size is None else size, elements(kept)
    share = f" / {ranks} GPUs" if ranks > 1 else ""
    formula = f"{whole / max(1, count):.5g} B x {count:,} parameters{share}"
    return Term("weights", formula, -(-whole // ranks), "TRL 1.16 trainers; trl/models/utils.py", label)
