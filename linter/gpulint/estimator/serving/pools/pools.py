"""Engines that give the KV cache a share of the memory that is left: TGI, TensorRT-LLM, LMDeploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....source.tables import read_table
from ....units import bytes_text
from ....upstream.behaviour import at_release
from ...allocator.runtime import neighbours
from ...estimate import Estimate
from ...terms import Product, Term, line, terms, total
from ..inference_assumptions import inference_assumptions
from ..vllm.activations import padded_vocabulary
from ..vllm.memory_budget import AVAILABLE
from .pool import ACTIVATIONS, Pool, available, pooled, rank

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from .pool import Rank

_TABLE = read_table(__file__, "pools.json")


def engine_name(engine: str) -> str | None:
    """The engine of `pools.json` that a spelling means; None for one that is not in it."""
    name = _TABLE["spellings"].get(engine.lower(), engine.lower())
    return name if name in _TABLE["engines"] else None


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
    given = job.serving
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
        scored = Product(f"logits of all tokens, {gathered:g} times", 2 * gathered, counts)
        held = held._replace(logits=tuple(terms("logits", (scored,), ACTIVATIONS)))
    defaulted = [(path, str(default)) for path, (stated, default) in asked.items() if stated is None]
    tool = f"{row['name'].rpartition(' ')[0]} {version}" if version else row["name"]
    told = inference_assumptions(job, model, defaulted, tool)
    if gpu is None:
        return pooled(job, model, gpu, held, None, told)
    block, outside = row["block"] * held.token, held.overhead
    own, whole = int(tokens) * held.token, row["of"] in ("total", "free")
    limit = None if given.max_total_tokens is None or whole else given.max_total_tokens * held.token
    fewest, pool, most = (
        _pool(row, share, held, card, taken, own, limit, block)
        for card, taken in (
            (gpu.usable, outside.high + max(0, neighbours(gpu).held[1] - outside.context_range[1])),
            (gpu.usable, outside.total),
            (gpu.total, outside.low - outside.nccl_range[0]),
        )
    )
    least = own if whole else 1
    made = Pool(
        available=pool,
        between=(total(fewest), total(most)),
        refusal=_refusal(held, total(pool), least),
        cannot=total(most) < least,
        doubtful=total(fewest) < least,
        least=least,
        absorbs=1.0 if row["of"] == "total" else share,
    )
    return pooled(job, model, gpu, held, made, told)


def _pool(
    row: dict[str, Any],
    share: float,
    held: Rank,
    card: int,
    outside: int,
    own: int,
    limit: int | None,
    block: int,
) -> tuple[Term, ...]:
    """What is left for the cache of a `card`, beside what lies `outside` torch; no more than `limit`, whole blocks."""
    of, source = row["of"], row["source"]
    if of == "total":
        first = Term(AVAILABLE, f"{share:g} x {card:,} B", round(share * card), source, "share of the card")
        found = available(
            (first,),
            line("", outside, "what is outside torch", source),
            line("", total(held.weights), "weights", source),
            line("", total(held.workspace), "cuBLAS workspace", source),
            line("", held.step, "one step: activations and logits", source),
        )
    else:
        free = card - outside - held.resident - (0 if of == "weights" else held.step) - (own if of == "free" else 0)
        what = f"share of what weights, their workspace and what is outside torch leave of the card{_LESS[of]}"
        first = Term(AVAILABLE, f"{share:g} x {free:,} B", round(share * free), source, what)
        kept = line(AVAILABLE, own, "cache of the step's tokens", source)
        found = (first, kept) if of == "free" else (first,)
    more = 0 if limit is None else max(0, total(found) - limit)
    rest = (total(found) - more) % block if block else 0
    unused = (more, "more than is asked for"), (rest, "rest of a block")
    return (*found, *(line(AVAILABLE, -size, what, source) for size, what in unused if size))


_LESS = {"free": ", less one step and the cache of its tokens", "run": ", less one step", "weights": ""}


def _refusal(held: Rank, pool: int, least: int) -> str | None:
    if pool >= least:
        return None
    if pool <= 0:
        return f"nothing is left for the KV cache beside weights of {bytes_text(total(held.weights))}"
    return f"the KV cache of {bytes_text(pool)} does not hold the {bytes_text(least)} of one prefill step"


def _profile(engine: str, version: str | None) -> dict[str, Any]:
    """The engine's row, with what differed in an older version."""
    row: dict[str, Any] = _TABLE["engines"][engine]
    return {**row, **next(iter(at_release(row.get("former", ()), version)), {})}
