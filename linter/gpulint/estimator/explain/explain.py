"""The whole derivation of an estimate, for `--explain`: its terms, and the replayed ones tensor by tensor."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..evaluation import evaluating, scored
from ..loaded_model import as_run, loaded_model
from ..states.stage import pipeline
from .tensors import tensors

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..estimate import Estimate
    from ..terms import Term


def explained(estimate: Estimate, job: Job, model: Model) -> Estimate:
    """The estimate, with what the replay found alive at its peak told tensor by tensor.

    The candidate that won is replayed once more on a tape that knows what each tensor is.
    """
    candidate = estimate.peak.candidate
    if candidate is None or not candidate.terms:
        return estimate
    job = as_run(job, model)
    found = _tensors(estimate, job, loaded_model(job, model))
    told: list[Term] = []
    for term in estimate.peak.terms:
        replayed = term in candidate.terms
        told += [line for line in found if line.component == term.component] if replayed else [term]
    return replace(estimate, peak=replace(estimate.peak, terms=tuple(told)))


def _tensors(estimate: Estimate, job: Job, model: Model) -> list[Term]:
    """The tensors of the peak's candidate: of a prompt's pass, of an evaluation's or of a training step."""
    candidate = estimate.peak.candidate
    assert candidate is not None
    given = job.inference
    if given is not None and job.kind == "inference":
        from ..serving.generation.prompt import widest_tensors

        cache = estimate.components["kv_cache"]
        return widest_tensors(job, model, given.batch_size or 1, given.prompt_length or 1, cache)
    stage = next(stage for stage in pipeline(job, model) if estimate.fullest in (None, stage.name))
    if estimate.peak_phase == "evaluation":
        run = partial(scored, caches=stage.job.evaluation.caches)
        return tensors(evaluating(stage.job), stage.whole, candidate, run)
    return tensors(stage.job, stage.whole, candidate)
