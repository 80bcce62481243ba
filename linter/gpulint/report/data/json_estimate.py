"""Estimates as one JSON object, `gpulint-estimate/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...declared import plain
from ..masking import masked
from ..printable import json_text
from . import shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...estimator.estimate import Estimate, HostMemory, KvCache
    from ...estimator.terms import Term
    from ...finding import JobResult


def render(estimates: Iterable[tuple[str, Estimate, JobResult]], *, explain: bool = False) -> str:
    """Files, their estimates and what comes of the jobs as JSON text, with the derivation on request;
    `schemas/estimate.json` describes it."""
    found = tuple(_estimate(file, item, result, explain=explain) for file, item, result in estimates)
    return json_text(plain(shape.Estimates(shape.ESTIMATE, found)))


def as_object(file: str, estimate: Estimate, result: JobResult) -> dict[str, Any]:
    """One estimate as plain data; integers are bytes on the fullest GPU."""
    found: dict[str, Any] = plain(_estimate(file, estimate, result))
    return found


def _estimate(file: str, estimate: Estimate, result: JobResult, *, explain: bool = False) -> shape.Estimate:
    return shape.Estimate(
        file=file,
        kind=cast("shape.Kind", estimate.kind),
        model=shape.Model(masked(estimate.model_id), estimate.parameters, estimate.trainable_parameters),
        per_gpu=estimate.per_gpu,
        components=shape.Components(**estimate.components),
        phases={phase.name: phase.allocated for phase in estimate.phases},
        peak_phase=estimate.peak_phase,
        fullest=estimate.fullest,
        kv_cache=None if estimate.kv_cache is None else _kv_cache(estimate.kv_cache),
        capacity=estimate.capacity,
        host=estimate.host,
        host_memory=None if estimate.host_memory is None else _host_memory(estimate.host_memory),
        verdict=estimate.verdict,
        refusal=estimate.stops,
        why=result.why or None,
        settles=result.settles or None,
        assumptions=tuple(
            shape.Assumption(item.field, item.value, item.origin, item.low or None, item.high or None)
            for item in estimate.assumptions
        ),
        terms=tuple(map(_term, estimate.terms)) if explain else None,
    )


def _kv_cache(cache: KvCache) -> shape.KvCache:
    bounds = () if cache.low is None else (cache.low, cache.high)
    return shape.KvCache(cache.bytes_per_token, cache.tokens, cache.max_concurrency, *bounds)


def _host_memory(host: HostMemory) -> shape.HostMemory:
    return shape.HostMemory(host.load, host.train, host.save, host.pinned, host.peak, host.high)


def _term(term: Term) -> shape.Term:
    return shape.Term(term.component, term.size, term.formula, term.label, term.source)
