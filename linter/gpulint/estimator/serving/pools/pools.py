"""Engines that give the KV cache a share of the memory that is left: TGI, TensorRT-LLM, LMDeploy."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ....units import bytes_text
from ....upstream.behaviour import at_release
from ...allocator.runtime import neighbours
from ...estimate import Estimate, Term
from ...explain.product import Product
from ..inference_assumptions import inference_assumptions
from ..vllm.activations import padded_vocabulary
from .pool import ROOM, pooled, rank, room_terms

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from .pool import Rank


def engine_name(engine: str) -> str | None:
    """The engine of `pools.json` that a spelling means; None for one that is not in it."""
    name = _table()["spellings"].get(engine.lower(), engine.lower())
    return name if name in _table()["engines"] else None


def estimate_pool(job: Job, model: Model, gpu: Gpu | None, engine: str) -> Estimate:
    """The Estimate of one rank of an engine of `pools.json`.

    free = card - CUDA context, kernels and NCCL
    cache = share x card - (card - free) - weights - step         (TGI)
            share x (free - weights - step - own) + own           (TGI before 3.0; own: the cache of the step's tokens)
            share x (free - weights - step)                       (TensorRT-LLM)
            share x (free - weights)                              (LMDeploy, which meets the step with what is left)

    `step` is the activations and logits of `max_num_batched_tokens` tokens and `max_num_seqs` requests. TGI before 3.0
    asked its warm-up for the probabilities of all prompt tokens: logits of each, until 2.4 with their logarithms beside
    them; of several ranks also those of the rank before they are gathered, and a copy of the gathered ones, which lie
    transposed (flash_causal_lm.py `generate_token`, `warmup`; layers/tensor_parallel.py; client.rs).
    `inference.gpu_memory_utilization` is the engine's own share (TGI's cuda memory fraction times its wiggle room,
    `free_gpu_memory_fraction`, `cache_max_entry_count`). Blocks are whole. `refusal` is that nothing is left, for TGI
    that the cache cannot hold the tokens of the step. `low` and `high` of the cache are by what may lie outside torch
    (NCCL nothing at the least: it may keep its buffers in main memory) and by what a card of that name may have.
    """
    given = job.inference
    assert given is not None
    version = given.version or job.versions.get(engine)
    row = _profile(engine, version)
    asked = {
        "inference.gpu_memory_utilization": (given.gpu_memory_utilization, row["share"]),
        "inference.max_num_batched_tokens": (given.max_num_batched_tokens, row["tokens"]),
        "inference.max_num_seqs": (given.max_num_seqs, row["requests"]),
    }
    share, tokens, requests = (default if stated is None else stated for stated, default in asked.values())
    held = rank(job, model, gpu, int(tokens), min(int(requests), int(tokens)))
    if row.get("copies"):
        ranks = job.parallelism.tensor
        gathered = row["copies"] + (1 + 1 / ranks if ranks > 1 else 0)
        counts = (int(tokens), "tokens"), padded_vocabulary(model)
        held = held._replace(scored=Product(f"logits of all tokens, {gathered:g} times", 2 * gathered, counts))
    defaulted = [(path, str(default)) for path, (stated, default) in asked.items() if stated is None]
    tool = f"{row['name'].rpartition(' ')[0]} {version}" if version else row["name"]
    told = inference_assumptions(job, model, defaulted, tool)
    if gpu is None:
        return pooled(job, model, gpu, held, None, assumptions=told)
    block, outside = row["block"] * held.token, held.overhead
    own = int(tokens) * held.token
    fewest, pool, most = (
        _pool(row["of"], share, held, card, taken, own)
        for card, taken in (
            (gpu.usable, outside.high + max(0, neighbours(gpu).held[1] - outside.context_range[1])),
            (gpu.usable, outside.total),
            (gpu.total, outside.low - outside.nccl_range[0]),
        )
    )
    whole = row["of"] in ("total", "free")
    if given.max_total_tokens is not None and not whole:
        fewest, pool, most = (min(size, given.max_total_tokens * held.token) for size in (fewest, pool, most))
    fewest, pool, most = (size - size % block if block else size for size in (fewest, pool, most))
    least = own if whole else 1
    refusal = _refusal(held, pool, least)
    room = _room(row, share, held, gpu, outside.total, own)
    asked_for = sum(term.size for term in room) - pool
    room += [Term(ROOM, f"{-asked_for:,} B", -asked_for, row["source"], "rest of a block")] if asked_for else []
    absorbs = 1.0 if row["of"] == "total" else share
    return pooled(
        job, model, gpu, held, pool, refusal=refusal, cannot=most < least, doubtful=fewest < least, least=least,
        absorbs=absorbs, between=(fewest, most), terms=tuple(room), assumptions=told,
    )  # fmt: skip


def _pool(of: str, share: float, held: Rank, card: int, outside: int, own: int) -> int:
    step = held.activations + held.logits
    resident = held.weights + held.workspace
    if of == "total":
        return round(share * card) - outside - resident - step
    left = card - outside - resident
    if of == "free":
        return round(share * (left - step - own)) + own
    return round(share * (left - step)) if of == "run" else round(share * left)


def _room(row: dict[str, Any], share: float, held: Rank, gpu: Gpu, outside: int, own: int) -> list[Term]:
    """The lines of `_pool`."""
    of, source = row["of"], row["source"]
    resident, step = held.weights + held.workspace, held.activations + held.logits
    if of == "total":
        first = Term(ROOM, f"{share:g} x {gpu.usable:,} B", round(share * gpu.usable), source, "share of the card")
        taken = (outside, OUTSIDE), (held.weights, "weights"), (held.workspace, "cuBLAS workspace"), (step, STEP)
        return room_terms(taken, source, first)
    left = gpu.usable - outside - resident
    free = left - own - step if of == "free" else left - step if of == "run" else left
    what = "share of what weights, their workspace and what is outside torch leave of the card"
    first = Term(ROOM, f"{share:g} x {free:,} B", round(share * free), source, what + _LESS[of])
    return room_terms(((-own, "cache of the step's tokens"),) if of == "free" else (), source, first)


OUTSIDE, STEP = "what is outside torch", "one step: activations and logits"
_LESS = {"free": ", less one step and the cache of its tokens", "run": ", less one step", "weights": ""}


def _refusal(held: Rank, pool: int, least: int) -> str | None:
    if pool >= least:
        return None
    if pool <= 0:
        return f"nothing is left for the KV cache beside weights of {bytes_text(held.weights)}"
    return f"the KV cache of {bytes_text(pool)} does not hold the {bytes_text(least)} of one prefill step"


def _profile(engine: str, version: str | None) -> dict[str, Any]:
    """The engine's row, with what differed in an older version."""
    row: dict[str, Any] = _table()["engines"][engine]
    return {**row, **next(iter(at_release(row.get("former", ()), version)), {})}


@cache
def _table() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "pools.json"), encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    return table
