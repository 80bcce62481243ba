"""What a training objective does to a micro batch: how many sequences, which tokens are scored, with which loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...upstream import openrlhf
from ...upstream.stack import Stack
from ..states.reference import needs_reference

if TYPE_CHECKING:
    from ...job.job import Job

PAIRED = frozenset({"dpo", "ipo", "orpo", "cpo", "simpo", "reward"})
"""Objectives whose batches hold a chosen and a rejected sequence for every example (TRL `concatenated_forward`)."""

ONLINE = frozenset({"grpo", "rloo", "ppo", "online_dpo", "xpo", "nash_md", "gspo", "dapo"})
"""Objectives that score completions they generated."""

UNPAIRED = frozenset({"kto", "bco"})

TASKS = frozenset({"classification", "token_classification", "question_answering", "masked_lm", "seq2seq", "ctc"})
"""Objectives with a head or a loss of their own (`models/heads.json`)."""


class Objective(NamedTuple):
    """One micro batch of an objective.

    sequences   forward rows of the batch for every configured one;  length  tokens of a sequence
    scored      the last tokens of each sequence that get logits
    loss        cross_entropy, log_probabilities, score, or the name of a task
    reference   whether a forward pass without gradients runs before backward (a frozen model or a disabled adapter)
    """

    sequences: int
    length: int
    scored: int
    loss: str
    reference: bool


def objective(job: Job) -> Objective:
    """How a job's objective shapes the micro batch.

    Online objectives: sequences of prompt and completion, logits of the completion's tokens only. Packed pairs fill
    the length together: ms-swift, which alone packs them, adds up both lengths (swift/dataset/packing.py
    `create_packed_idx`, 4.6).
    """
    name = job.objective
    length = job.sequence_length or 0
    if job.packing and name in PAIRED:
        length = -(-length // 2)
    if name in ONLINE:
        completion = job.rl.completion_length or length
        length = max(length, (job.rl.prompt_length or 0) + completion)
        # OpenRLHF makes the logits of the prompts too
        scored = length if Stack(job).runs(openrlhf.NAME) else min(length, completion + 1)
        return Objective(1, length, scored, "log_probabilities", False)
    if name in TASKS:
        return Objective(1, length, length, name, False)
    if name == "reward":
        return Objective(2, length, length, "score", False)
    if name in PAIRED:
        return Objective(2, length, length, "log_probabilities", _reference(job))
    if name in UNPAIRED:
        return Objective(1, length, length, "log_probabilities", _reference(job))
    return Objective(1, length, length, "cross_entropy", False)


def _reference(job: Job) -> bool:
    if job.rl.precompute_reference or job.objective in ("orpo", "cpo", "simpo"):
        return False
    return needs_reference(job) or job.adapter is not None
