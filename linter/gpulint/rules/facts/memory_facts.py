"""Facts of the memory estimate; those of REPLAYED need the replay of the allocator too."""

from __future__ import annotations

from typing import Any

from ...estimator.estimate import COMPONENTS
from ..expression import UNKNOWN
from .facts import Facts, fact

REPLAYED = frozenset({"estimate.peak", "estimate.high"})


def _estimate_fact(path: str, meaning: str, take: Any, unit: str = "bytes", type: str = "") -> None:  # noqa: A002
    def derive(facts: Facts) -> Any:
        estimate = facts.estimate if path in REPLAYED else facts.outline
        if estimate is None:
            return UNKNOWN
        value = take(estimate)
        return UNKNOWN if value is None else value

    derive.__doc__ = meaning
    fact(path, unit, type)(derive)


def _component(name: str) -> Any:
    return lambda estimate: estimate.components[name]


def _most(name: str) -> Any:
    return lambda estimate: max(phase.components.get(name, 0) for phase in (*estimate.phases, estimate.peak))


_ABOUT = {
    "weights": "the base weights", "adapter": "adapter weights", "gradients": "gradients",
    "optimizer": "optimizer states", "activations": "saved activations", "logits": "logits and the loss",
    "kv_cache": "the KV cache", "buffers": "sharding and communication buffers",
    "runtime": "CUDA context, NCCL and libraries",
}  # fmt: skip

for _name in COMPONENTS:
    _estimate_fact(f"estimate.{_name}", f"Bytes of {_ABOUT[_name]} at the peak.", _component(_name))
for _name in COMPONENTS[:-1]:
    _estimate_fact(f"peak.{_name}", f"Bytes of {_ABOUT[_name]} when they are largest.", _most(_name))

_estimate_fact("estimate.peak", "Memory of the process on the GPU that needs most.", lambda e: e.per_gpu.process)
_estimate_fact("estimate.allocated", "Bytes that torch allocates at the peak.", lambda e: e.per_gpu.allocated)
_estimate_fact("estimate.low", "The lower bound of the peak.", lambda e: e.per_gpu.low)
_estimate_fact("estimate.high", "The upper bound of the peak.", lambda e: e.per_gpu.high)
_estimate_fact("estimate.host", "Host RAM per node that offloading takes.", lambda e: e.host)
_estimate_fact("estimate.phase", "The phase of the peak: `forward`, `backward` ...", lambda e: e.peak_phase, "")
_estimate_fact(
    "estimate.verdict", "fits, tight, exceeds or unknown, of the values that the job has and rows of the full length.",
    lambda e: e.as_stated, "",
)  # fmt: skip
_estimate_fact("estimate.startup_error", "Why the engine would fail to start.", lambda e: e.refusal, "")
_estimate_fact(
    "estimate.kv_cache.tokens", "Tokens the KV cache holds on one GPU.",
    lambda e: e.kv_cache and e.kv_cache.tokens, "tokens",
)  # fmt: skip
_estimate_fact(
    "estimate.kv_cache.bytes_per_token", "Bytes of KV cache for one token.",
    lambda e: e.kv_cache and e.kv_cache.bytes_per_token,
)  # fmt: skip
_estimate_fact(
    "estimate.kv_cache.max_concurrency", "Requests of full length that the KV cache holds.",
    lambda e: e.kv_cache and e.kv_cache.max_concurrency, "", "number",
)  # fmt: skip
_estimate_fact(
    "estimate.static", "Bytes of weights, adapter, gradients and optimizer states, each when it is largest.",
    lambda e: sum(_most(name)(e) for name in ("weights", "adapter", "gradients", "optimizer")),
)  # fmt: skip


@fact("estimate.weights_read", "bytes")
def _weights_read(facts: Facts) -> Any:
    """Bytes of weights that one replica of a server reads before it answers: those of its ranks together."""
    outline = facts.outline
    if outline is None or facts.job.kind != "inference":
        return UNKNOWN
    return _most("weights")(outline) * facts.job.model_shards


@fact("estimate.error")
def _error(facts: Facts) -> Any:
    """Why memory cannot be estimated."""
    return facts.estimate_reason if facts.outline is None else UNKNOWN
