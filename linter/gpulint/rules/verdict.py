"""What becomes of a job's memory: the verdict, or why there is none and what would settle it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import JobResult
from ..units import bytes_text
from .doubts import named

if TYPE_CHECKING:
    from .facts.facts import Facts

NAME_A_GPU = "--gpu, a `# gpulint: gpu=...` comment or gpulint.toml"
KNOW_THE_MODEL = "`gpulint models add`, a config.json, or another name in gpulint.toml"
STATE_THE_MODEL = "a model in the file, or the file that names it"
STATE_MORE = "what `gpulint estimate` lists as assumed"
STATE_THE_REST = "the batch size and the length"


def verdict_of(facts: Facts, part: str) -> JobResult:
    """The verdict of a job over all that its open facts may be; `not-checked` where nothing can be said of its memory.

    A job without a GPU is not estimated for this.
    """

    def unchecked(why: str, settles: str) -> JobResult:
        return JobResult(part, "not-checked", why, settles)

    model = facts.job.model
    if model is None:
        origin = facts.job.origins.get("model")
        filled = origin.note if origin is not None and origin.note.endswith("filled in when the job starts") else ""
        return unchecked(f"the model {filled}" if filled else "the model is not named", STATE_THE_MODEL)
    if facts.model is None:
        return unchecked(facts.model_reason, KNOW_THE_MODEL)
    if facts.gpu is None:
        return unchecked("no GPU is named", NAME_A_GPU)
    if facts.job.unread:
        return unchecked(facts.job.unread, "")
    estimate = facts.estimate
    if estimate is None:
        return unchecked(facts.estimate_reason, STATE_THE_REST)
    if estimate.refusal is not None and estimate.verdict == "exceeds":
        return JobResult(part, "refuses")
    if estimate.verdict == "unknown":
        return unchecked("the batch size or the length is not stated", STATE_THE_REST)
    if estimate.undecided:
        low, high = bytes_text(estimate.per_gpu.low), bytes_text(estimate.per_gpu.high)
        most = max(estimate.assumptions, key=lambda item: max(item.low, item.high), default=None)
        rests = f", which rests on {named(facts.job, most.field)} {most.value}" if most is not None else ""
        return unchecked(f"it needs {low} to {high}{rests}", STATE_MORE)
    return JobResult(part, estimate.verdict)
