"""When no single change is enough: two or three together, and, when nothing fits, the hardware that does."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations as subsets
from typing import TYPE_CHECKING

from ..finding import Suggestion
from .change import resolved
from .expression import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..estimator.estimate import Estimate
    from .facts import Facts
    from .suggest import Bench, Candidate

PAIRED = 7
TRIPLED = 6
"""How many of the changes that save most are tried in pairs and in threes."""

GPU_COUNTS = (2, 4, 8, 16, 32, 64, 128)


def combinations(bench: Bench, singles: list[Candidate]) -> list[Candidate]:
    """Pairs of the recipes that save most, then threes while no pair fits, within the bench's estimates."""
    strongest = _strongest(bench, singles)
    found: list[Candidate] = []
    for size, width in ((2, PAIRED), (3, TRIPLED)):
        for parts in subsets(strongest[:width], size):
            if bench.exhausted:
                return found
            together = _together(bench, parts)
            if together is not None:
                found.append(together)
        if any(item.verdict == "fits" for item in found):
            break
    return found


def _strongest(bench: Bench, singles: list[Candidate]) -> list[Candidate]:
    """Every recipe's most saving change, those that save most first; a change that saves nothing is left out."""
    tried = [*singles]
    seen = [item.changes for item in singles]
    for recipe in sorted(bench.selection.recipes.values(), key=lambda advice: advice.rank):
        if resolved(recipe, bench.facts, recipe.factors[0] if recipe.factors else None) not in (*seen, None):
            tried += bench.tried(recipe)
    now = bench.facts.estimate
    needed = now.needed if now is not None else 0
    best: dict[tuple[str, ...], Candidate] = {}
    for item in sorted(tried, key=lambda item: item.needed):
        if item.needed < needed:
            best.setdefault(tuple(sorted(item.changes)), item)
    return sorted(best.values(), key=lambda item: item.needed)


def _together(bench: Bench, parts: tuple[Candidate, ...]) -> Candidate | None:
    """Several changes as one; None where two of them set the same field."""
    changes: dict[str, object] = {}
    for part in parts:
        if changes.keys() & part.changes.keys():
            return None
        changes |= part.changes
    fix = "safe" if all(part.fix == "safe" for part in parts) else "unsafe"
    return bench.candidate(changes, fix, sum(part.rank for part in parts) + 100 * len(parts))


def smallest_hardware(facts: Facts) -> tuple[Suggestion, ...]:
    """The smallest GPU of the catalogue, and the smallest number of these GPUs, that the job as written fits."""
    texts: list[Suggestion] = []
    for text, estimate in (*_more_gpus(facts), *_larger_gpu(facts)):
        texts.append(Suggestion(f"nothing in this config makes it fit; it fits on {text}", estimate.needed))
    return tuple(texts)


def _larger_gpu(facts: Facts) -> Iterator[tuple[str, Estimate]]:
    from ..hardware.catalogue import gpus

    model, now = facts.model, facts.gpu
    if model is None or now is None:
        return
    larger = sorted(
        (gpu for gpu in gpus() if gpu.usable > now.usable and gpu.vendor == now.vendor),
        key=lambda gpu: gpu.usable,
    )
    for gpu in larger:
        estimate = _estimated(facts, facts.job.world_size, gpu)
        if estimate is not None and estimate.verdict == "fits":
            yield f"{facts.job.world_size} x {gpu.title}", estimate
            return


def _more_gpus(facts: Facts) -> Iterator[tuple[str, Estimate]]:
    if facts.gpu is None or facts.get("shards.states") in (False, UNKNOWN):
        return
    for count in GPU_COUNTS:
        if count <= facts.job.world_size:
            continue
        estimate = _estimated(facts, count, facts.gpu)
        if estimate is not None and estimate.verdict == "fits":
            yield f"{count} x {facts.gpu.title}", estimate
            return


def _estimated(facts: Facts, gpus: int, gpu: object) -> Estimate | None:
    from ..estimator import estimate_job
    from ..estimator.estimate import NotEstimable

    hardware = replace(facts.job.hardware, gpu=gpu.name, gpus=gpus)  # type: ignore[attr-defined]
    job = facts.job.with_changes({"hardware": hardware, "parallelism.data": None})
    if facts.model is None:
        return None
    try:
        return estimate_job(job, facts.model, gpu)  # type: ignore[arg-type]
    except NotEstimable:
        return None
