"""Estimates as one JSON object, `gpulint-estimate/1`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...estimator.estimate import Estimate
    from ...estimator.terms import Term

SCHEMA = "gpulint-estimate/1"


def render(estimates: Iterable[tuple[str, Estimate]], *, explain: bool = False) -> str:
    """(file, estimate) pairs as JSON text, with their derivation on request; `schemas/estimate.json` describes it."""
    found = [as_object(file, item, explain=explain) for file, item in estimates]
    return json.dumps({"schema": SCHEMA, "estimates": found}, indent=2)


def as_object(file: str, estimate: Estimate, *, explain: bool = False) -> dict[str, Any]:
    """One estimate as plain data; integers are bytes on the fullest GPU."""
    kv_cache, capacity = estimate.kv_cache, estimate.capacity
    return {
        "file": file,
        "kind": estimate.kind,
        "model": {
            "id": estimate.model_id,
            "parameters": estimate.parameters,
            "trainable_parameters": estimate.trainable_parameters,
        },
        "per_gpu": per_gpu(estimate),
        "components": estimate.components,
        "phases": {phase.name: phase.allocated for phase in estimate.phases},
        "peak_phase": estimate.peak_phase,
        "fullest": estimate.fullest,
        "kv_cache": kv_cache
        and {
            "bytes_per_token": kv_cache.bytes_per_token,
            "tokens": kv_cache.tokens,
            "max_concurrency": kv_cache.max_concurrency,
            **({"tokens_low": kv_cache.low, "tokens_high": kv_cache.high} if kv_cache.low is not None else {}),
        },
        "capacity": capacity and {"gpu": capacity.gpu, "total": capacity.total, "usable": capacity.usable},
        "host": estimate.host,
        "host_memory": host_memory(estimate),
        "verdict": estimate.verdict,
        "refusal": estimate.refusal,
        "assumptions": [
            {
                "field": item.field,
                "value": item.value,
                "origin": item.origin,
                **({"low": item.low} if item.low else {}),
                **({"high": item.high} if item.high else {}),
            }
            for item in estimate.assumptions
        ],
        **({"terms": [_term(term) for term in estimate.terms]} if explain else {}),
    }


def _term(term: Term) -> dict[str, Any]:
    return {
        "component": term.component,
        "bytes": term.size,
        "formula": term.formula,
        "label": term.label,
        "source": term.source,
    }


def host_memory(estimate: Estimate) -> dict[str, int] | None:
    """Main memory of one node in bytes, by phase; None where nothing is said of it."""
    found = estimate.host_memory
    if found is None:
        return None
    return {
        "load": found.load,
        "train": found.train,
        "save": found.save,
        "pinned": found.pinned,
        "peak": found.peak,
        "high": found.high,
    }


def per_gpu(estimate: Estimate) -> dict[str, int]:
    """The tiers of one GPU in bytes."""
    tiers = estimate.per_gpu
    return {
        "allocated": tiers.allocated,
        "reserved": tiers.reserved,
        "process": tiers.process,
        "low": tiers.low,
        "high": tiers.high,
    }
