"""When no change that a rule names is enough: all recipes, two or three together, then the hardware that does."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations as subsets
from typing import TYPE_CHECKING

from ..finding import Suggestion
from .change import resolved
from .suggest import Attempt

if TYPE_CHECKING:
    from ..hardware.gpu import Gpu
    from .facts import Facts
    from .suggest import Bench, Candidate

PROMISE = 1.15
"""A combination is tried when its parts' savings together would bring the need below this times the GPU. More than 1,
because the peak is a maximum: two changes can save more together than each alone."""

ENOUGH = 6
"""Combinations that fit after which the search stops."""

GPU_COUNTS = (2, 4, 8, 16, 32, 64, 128)


def combinations(bench: Bench, singles: list[Candidate]) -> list[Candidate]:
    """What fits of all recipes; else pairs, then threes while no pair fits, those that change the run least first.

    All within the bench's estimates.
    """
    parts = _useful(bench, singles)
    fitting = [item for item in parts if item.verdict == "fits"]
    if fitting:
        return fitting
    found: list[Candidate] = []
    for size in (2, 3):
        for group in sorted(subsets(parts, size), key=_rank):
            if bench.exhausted or sum(item.verdict == "fits" for item in found) >= ENOUGH:
                return found
            together = _together(bench, group)
            if together is not None:
                found.append(together)
        if any(item.verdict == "fits" for item in found):
            break
    return found


def _useful(bench: Bench, singles: list[Candidate]) -> list[Candidate]:
    """Every recipe's most saving change; a change that saves nothing is left out."""
    tried = [*singles]
    seen = [item.attempt.changes for item in singles]
    for recipe in sorted(bench.selection.recipes.values(), key=lambda advice: advice.rank):
        if resolved(recipe, bench.facts, recipe.factors[0] if recipe.factors else None) not in (*seen, None):
            tried += bench.tried(recipe)
    needed = _needed(bench)
    best: dict[tuple[str, ...], Candidate] = {}
    for item in sorted(tried, key=lambda item: item.needed):
        if item.needed < needed:
            best.setdefault(tuple(sorted(item.attempt.changes)), item)
    return sorted(best.values(), key=lambda item: item.attempt.rank)


def _needed(bench: Bench) -> int:
    now = bench.facts.estimate
    return now.needed if now is not None else 0


def _rank(parts: tuple[Candidate, ...]) -> int:
    return sum(part.attempt.rank for part in parts)


def _together(bench: Bench, parts: tuple[Candidate, ...]) -> Candidate | None:
    """Several changes as one; None where they do not go together or cannot be enough."""
    if any(_clash(one.attempt, two.attempt) for one, two in subsets(parts, 2)):
        return None
    needed = _needed(bench)
    expected = needed - sum(needed - part.needed for part in parts)
    if bench.facts.gpu is not None and expected > PROMISE * bench.facts.gpu.usable:
        return None
    changes: dict[str, object] = {}
    for part in parts:
        changes |= part.attempt.changes
    fix = "safe" if all(part.attempt.fix == "safe" for part in parts) else "unsafe"
    words = ", ".join(part.attempt.words or part.changed.text for part in parts)
    return bench.candidate(Attempt(changes, fix, _rank(parts) + 100 * len(parts), words=words, combined=True))


def _clash(one: Attempt, two: Attempt) -> bool:
    """Whether two attempts set the same field, are of one family, or exclude one another."""
    if one.changes.keys() & two.changes.keys() or (one.family and one.family == two.family):
        return True
    return two.family in one.excludes or one.family in two.excludes


def smallest_hardware(facts: Facts) -> tuple[Suggestion, ...]:
    """The fewest of these GPUs, and the smallest other GPU of the catalogue, on which the job fits."""
    if facts.gpu is None or facts.model is None:
        return ()
    found = [item for item in (_more_gpus(facts, facts.gpu), _larger_gpu(facts, facts.gpu)) if item is not None]
    if not found:
        return (Suggestion("nothing in this config makes it fit, and no GPU of the catalogue holds it"),)
    return tuple(Suggestion(f"nothing in this config makes it fit; it fits on {text}", size) for text, size in found)


def _larger_gpu(facts: Facts, now: Gpu) -> tuple[str, int] | None:
    from ..hardware.catalogue import gpus

    larger = (gpu for gpu in gpus() if gpu.usable > now.usable and gpu.vendor == now.vendor)
    count = facts.job.world_size
    for gpu in sorted(larger, key=lambda gpu: gpu.usable):
        size = _fitting(facts, {}, count, gpu)
        if size is not None:
            return f"{count} x {gpu.title}", size
    return None


def _more_gpus(facts: Facts, gpu: Gpu) -> tuple[str, int] | None:
    job = facts.job
    for count in GPU_COUNTS:
        if count <= job.world_size:
            continue
        changes: dict[str, object] = {}
        way = ""
        if job.kind == "inference":
            if facts.model is None or facts.model.shape.heads % count:
                continue
            changes, way = {"parallelism.tensor": count}, f" with tensor parallel size {count}"
        elif not facts.get("shards.weights") and job.weights.quantization is None:
            changes, way = {"parallelism.zero.stage": 3}, " with ZeRO-3"
        size = _fitting(facts, changes, count, gpu)
        if size is not None:
            return f"{count} x {gpu.title}{way}", size
    return None


def _fitting(facts: Facts, changes: dict[str, object], gpus: int, gpu: Gpu) -> int | None:
    """The bytes a GPU needs on that hardware; None where the job does not fit it."""
    from ..estimator import estimate_job
    from ..estimator.estimate import NotEstimable
    from ..models.lora import NotAdaptable

    hardware = replace(facts.job.hardware, gpu=gpu.name, gpus=gpus)
    job = facts.job.with_changes({"hardware": hardware, "parallelism.data": None, **changes})
    if facts.model is None:
        return None
    try:
        estimate = estimate_job(job, facts.model, gpu)
    except (NotEstimable, NotAdaptable):
        return None
    return estimate.needed if estimate.verdict == "fits" else None
