"""What TRL's trainers do with whole logits beside their loss, read from the releases' own trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...upstream import axolotl
from ...upstream.stack import Stack
from ...upstream.trl import DIVIDES_IN_PLACE, ENTROPIES, KERNEL, NAME, NAMES_LOGITS, TEMPERATURE, TILES

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


def trl(job: Job) -> Trl:
    """The switches of the job's `versions.trl` for its objective."""
    stack, version, objective = Stack(job), job.versions.get(NAME), job.objective
    if objective == "sft" and stack.does(axolotl.OWN_SFT):
        return Trl()
    whole = job.loss.kernel == "torch" and job.loss.log_softmax != "float32"
    if version is None or objective not in ENTROPIES.types or not whole or TILES.at(version):
        return Trl()
    logged, kernel = ENTROPIES.at(version, objective), KERNEL.at(version)
    entropies = logged and not kernel
    if objective in ("dpo", "kto"):
        return Trl("", entropies, logged)
    if objective == "sft" or kernel or not TEMPERATURE.at(version):
        return Trl("", entropies)
    if DIVIDES_IN_PLACE.at(version):
        return Trl("in_place", entropies)
    return Trl("beside" if NAMES_LOGITS.at(version) else "anew", entropies)
