"""What becomes of a job's memory: the verdict, or why there is none and what would settle it.

`check` counts jobs by it, and `estimate`, `plan`, `compare`, the page and the editor say it in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import JobResult
from ..units import bytes_text
from .doubts import named

if TYPE_CHECKING:
    from ..estimator.estimate import Estimate
    from ..hardware.gpu import Gpu
    from ..job.job import Job
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
    found = without_model(facts.job, part, "" if facts.model is not None else facts.model_reason)
    found = found or without_hardware(facts.job, facts.gpu, part)
    if found is not None:
        return found
    estimate = facts.estimate
    if estimate is None:
        return not_estimated(part, facts.estimate_reason)
    told = facts.told if estimate.undecided else estimate
    return of_estimate(facts.job, told or estimate, part)


def without_model(job: Job, part: str, reason: str) -> JobResult | None:
    """That nothing is said of a job because its model is not named, or, for `reason`, not known."""
    if job.model is None:
        origin = job.origins.get("model")
        filled = origin.note if origin is not None and origin.note.endswith("filled in when the job starts") else ""
        return _unchecked(part, f"the model {filled}" if filled else "the model is not named", STATE_THE_MODEL)
    return _unchecked(part, reason, KNOW_THE_MODEL) if reason else None


def without_hardware(job: Job, gpu: Gpu | None, part: str) -> JobResult | None:
    """That nothing is said of a job without a GPU, or without a file that decides facts."""
    if gpu is None:
        return _unchecked(part, "no GPU is named", NAME_A_GPU)
    return _unchecked(part, job.unread, "") if job.unread else None


def not_estimated(part: str, reason: str) -> JobResult:
    """That nothing is said of a job whose memory cannot be derived; `reason` says what would settle it, if anything."""
    return _unchecked(part, reason, "")


def of_estimate(job: Job, estimate: Estimate, part: str) -> JobResult:
    """The verdict of an estimate on a GPU, unless its interval decides nothing."""
    if estimate.stops is not None and estimate.verdict == "exceeds":
        return JobResult(part, "refuses")
    if estimate.verdict == "unknown":
        return _unchecked(part, "the batch size or the length is not stated", STATE_THE_REST)
    if estimate.undecided:
        low, high = bytes_text(estimate.per_gpu.low), bytes_text(estimate.per_gpu.high)
        most = max(estimate.assumptions, key=lambda item: max(item.low, item.high), default=None)
        rests = f", which rests on {named(job, most.field)} {most.value}" if most is not None else ""
        return _unchecked(part, f"it needs {low} to {high}{rests}", STATE_MORE)
    return JobResult(part, estimate.verdict)


def _unchecked(part: str, why: str, settles: str) -> JobResult:
    return JobResult(part, "not-checked", why, settles)
