"""What TRL's trainers do with whole logits beside their loss, read from the releases' own trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...versions import older

if TYPE_CHECKING:
    from ...job.job import Job


class Trl(NamedTuple):
    """Switches of one release; a job that states none has none of them, as TRL 1.15 and later, which hold no logits.

    temperature  online trainers divide the logits: `anew` (0.16 to 0.29), or in their own bytes, `in_place` (1.0 to
                 1.9), or `beside` those that the model returned, which have a name (1.10 on), `` before
    entropies    of the policy's logits, for the log: GRPO 0.20 on, SFT and RLOO 0.22 on, DPO 0.29 on, KTO 1.8 on, to
                 1.13
    means        of wanted and unwanted answers' logits, which are copied for it: DPO 0.29 on, KTO 1.8 on, to 1.14
    """

    temperature: str = ""
    entropies: bool = False
    means: bool = False


KERNEL, TILES = "1.14", "1.15"
"""Entropies come from the kernel that makes log-probabilities; logits are made in tiles (trl/kernels)."""

ENTROPIES = {"sft": "0.22", "grpo": "0.20", "rloo": "0.22", "dpo": "0.29", "kto": "1.8"}
"""The first release whose trainer logs entropies (`entropy_from_logits`)."""

OWN = frozenset({"axolotl"})
"""Programs whose supervised fine-tuning is a Trainer of their own, whatever TRL is beside it."""

TEMPERATURE, IN_PLACE, BESIDE = "0.16", "1.0", "1.10"
"""When grpo_trainer.py came to divide by the temperature, to do it by `div_`, and to leave that again."""


def trl(job: Job) -> Trl:
    """The switches of the job's `versions.trl` for its objective."""
    version, first = job.versions.get("trl"), ENTROPIES.get(job.objective)
    if job.objective == "sft" and not OWN.isdisjoint(job.versions):
        return Trl()
    whole = job.loss.kernel == "torch" and job.loss.log_softmax != "float32"
    if version is None or first is None or not whole or not older(version, TILES):
        return Trl()
    logged = not older(version, first)
    entropies = logged and older(version, KERNEL)
    if job.objective in ("dpo", "kto"):
        return Trl("", entropies, logged)
    if job.objective == "sft" or older(version, TEMPERATURE) or not older(version, KERNEL):
        return Trl("", entropies)
    if older(version, IN_PLACE):
        return Trl("anew", entropies)
    return Trl("in_place" if older(version, BESIDE) else "beside", entropies)
