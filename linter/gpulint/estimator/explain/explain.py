"""The whole derivation of an estimate, for `--explain`.

The terms of each component sum to what it holds at the peak, those of a tier (`reserved`, `process`, `low`, `high`) to
the figure of that name.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..allocator import runtime
from ..estimate import Term
from ..loaded_model import loaded_model
from ..micro_step import in_flight, on_stage
from ..normalize import as_run
from ..serving.generation.terms import prompt_terms
from ..serving.kv_cache import layer_caches
from ..sharding.fsdp import ShardedLayout
from ..sharding.layouts import layout
from ..states.stage import pipeline
from .derivation import outside
from .product import Product, terms
from .tier_terms import tiers

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ...models.model import Model
    from ..activations import Held
    from ..estimate import Estimate
    from ..peak_candidate import Instant
    from ..sharding.layout import Layout
    from ..states.stage import Stage

REST = {
    "gradients": "what is left of the gradients then, with their copies",
    "optimizer": "what is left of states and temporaries then",
    "buffers": "gathered parameters, whole gradients and communication buffers alive then",
    "kv_cache": "the part of the cache that the estimate counts",
}
"""What a component holds at its peak besides the lines that are told, or in their place."""

PHASES = {
    ("load", "buffers"): "what loading needs beside the weights",
    ("save", "buffers"): "parameters that are gathered to be written",
    ("evaluation", "logits"): "logits of earlier evaluation steps, and those that are joined to them",
}
"""The same in one phase."""


def explained(estimate: Estimate, job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The estimate with terms for everything alive at its peak, on the rank that holds most.

    Lines of what is alive in another phase only are left out. Where the lines of a component still differ from what is
    alive at the peak, the rest is one line that says so. Lines of main memory (`host`) stay as they are.
    """
    job = as_run(job, model)
    model = loaded_model(job, model)
    found: dict[str, list[Term]] = defaultdict(list)
    for term in estimate.terms:
        if term.phase in ("", estimate.peak_phase):
            found[term.component].append(term)
    found["runtime"] = found["runtime"] or outside(runtime.process_overhead(gpu, job))
    if job.kind == "training":
        stage = next(stage for stage in pipeline(job, model) if estimate.fullest in (None, stage.name))
        plan = layout(stage.job, stage.own)
        if estimate.peak_phase == "optimizer_step":
            found["gradients"] = _stepped(found["gradients"], plan, estimate)
        elif estimate.peak_phase == "evaluation":
            _evaluated(found, estimate, stage, plan.evaluating())
        else:
            _at_peak(found, estimate, stage, plan)
    elif job.inference is not None and not any(phase.name == "serve" for phase in estimate.phases):
        found["activations"] = prompt_terms(estimate, job, model) or found["activations"]
    lines = []
    for name, size in estimate.components.items():
        lines += [line for beside in BEHIND.get(name, ()) for line in found[beside]]
        lines += _balanced(name, found[name], size, estimate)
    return replace(estimate, terms=(*lines, *tiers(estimate, job, gpu), *found["host"]))


BEHIND = {"kv_cache": ("kv_token", "kv_request", "kv_room")}
"""Figures that a component rests on, told before it."""


def _stepped(lines: list[Term], plan: Layout, estimate: Estimate) -> list[Term]:
    """The gradients of the optimizer step, with the copies that the plan makes of them."""
    size = estimate.peak.components["gradients"]
    if plan.in_backward and size == plan.largest_gradient:
        return [_in_hand(size)]
    return plan.step_terms if plan.step_terms and sum(line.size for line in plan.step_terms) == size else lines


def _evaluated(found: dict[str, list[Term]], estimate: Estimate, stage: Stage, plan: Layout) -> None:
    """Activations, logits and buffers of an evaluation's largest instant, and the logits that are there beside it."""
    from ..evaluation import evaluating, gathered_logits, scored
    from .activation_terms import terms as tensor_terms

    split = estimate.peak.components
    before, joined = gathered_logits(stage.job, stage.whole)
    found["gradients"] = found["gradients"] if plan.lasting else []
    if joined and not split["activations"]:
        what = "logits of the steps that are kept, as they are and joined to one tensor"
        found["logits"] = [Term("logits", f"2 x {joined // 2:,} B", joined, EVALUATION, what)]
        return

    def wanted(instant: Instant) -> bool:
        same = plan.activation_bytes(instant) == split["activations"] + split["kv_cache"]
        return same and instant.logits + before == split["logits"]

    run = partial(scored, caches=stage.job.evaluation.caches)
    lines = tensor_terms(evaluating(stage.job), stage.whole, wanted, run)
    if lines is None:
        return
    made, instant = lines
    if before:
        made.append(Term("logits", f"{before:,} B", before, EVALUATION, "logits of earlier evaluation steps"))
    if split["kv_cache"]:
        caches = layer_caches(stage.whole)[: instant.layer]
        found["kv_cache"], told = _cached(split["kv_cache"], sum(cache.grows for cache in caches))
        made.append(told)
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["buffers"] += plan.told(instant)


def _cached(size: int, layers: int) -> tuple[list[Term], Term]:
    """The keys and values that the outputs hold, and the line that takes them from the activations they are among."""
    each, odd = divmod(size, max(1, layers))
    formula = f"{size:,} B" if odd else f"{layers} layers x {each:,} B"
    line = Term("kv_cache", formula, size, CACHED, "keys and values, which the outputs hold to the end of the pass")
    return [line], Term("activations", f"- {formula}", -size, CACHED, "keys and values among them, told as the cache")


EVALUATION, CACHED = "estimator/evaluation.py: gathered_logits", "estimator/evaluation.py: passes"


def _at_peak(found: dict[str, list[Term]], estimate: Estimate, stage: Stage, plan: Layout) -> None:
    """Activations, logits, gradients and buffers of the instant that is the peak."""
    split, job = estimate.peak.components, stage.job
    if not split.get("activations") or not (job.micro_batch_size and job.sequence_length):
        return
    from ..activations import replayed
    from .activation_terms import terms as tensor_terms

    held = replayed(stage.job, stage.whole)[1]
    others = [line for line in found["buffers"] if line not in plan.terms]
    moving = split["buffers"] - sum(line.size for line in others)

    def here(instant: Instant) -> Instant | None:
        return instant if stage.of <= 1 else on_stage(instant, stage, held)

    def wanted(instant: Instant) -> bool:
        mine = here(instant)
        return (
            mine is not None
            and mine.phase == estimate.peak_phase
            and plan.activation_bytes(mine) == split["activations"]
            and mine.logits == split["logits"]
            and plan.gradient_bytes(mine.gradient_elements) == split["gradients"]
        )

    def exact(instant: Instant) -> bool:
        mine = here(instant)
        return wanted(instant) and mine is not None and plan.buffer_bytes(mine) == moving

    lines = tensor_terms(stage.job, stage.whole, exact) or tensor_terms(stage.job, stage.whole, wanted)
    if lines is None:
        return
    made, instant = lines
    mine = here(instant)
    assert mine is not None
    made += _in_flight(mine.activations - instant.activations, stage, held)
    if waiting := mine.logits - instant.logits:
        made.append(Term("logits", f"{waiting:,} B", waiting, "estimator/micro_step.py", WAITING))
    made += _left(plan.activation_bytes(mine) - mine.activations, plan)
    for name in ("activations", "logits"):
        found[name] = [line for line in made if line.component == name]
    found["gradients"] = _gradients(found["gradients"], plan, mine, split["gradients"])
    found["buffers"] += plan.told(mine)


WAITING = "outputs of other micro batches that stay, or their gradients until the head's weight gradient"


def _in_flight(size: int, stage: Stage, held: Held) -> list[Term]:
    """What other micro batches keep on a pipeline stage, and the head's inputs of those that wait for its gradient."""
    count, each = in_flight(stage, held)
    others, source = int(count * each), "estimator/states/schedule.py"
    lines = (
        (f"{count:g} x {each:,} B", others, "what the stage's layers keep of each other micro batch in flight"),
        (f"{size - others:,} B", size - others, "inputs of the head that wait for its weight gradient"),
    )
    return [Term("activations", formula, part, source, what) for formula, part, what in lines if part]


def _left(size: int, plan: Layout) -> list[Term]:
    """What layers leave to the end of the backward pass under FSDP, and caches that they return."""
    each = plan.kept if isinstance(plan, ShardedLayout) else 0
    finished = -(-size // each) if each else 0
    if finished and finished * each - each // 2 == size:
        layers = Product(
            "input and its gradient of each layer whose backward pass is done", each, ((finished, "layers"),)
        )
        handed = Product("of the last one's, which the layer in flight was handed", -(each // 2))
        return terms("activations", (layers, handed), "torch FSDP 1 with use_reentrant")
    what = "keys and values that the layers have returned"
    return [Term("activations", f"{size:,} B", size, "estimator/sharding/fsdp.py", what)] if size else []


def _in_hand(size: int) -> Term:
    return Term("gradients", f"{size:,} B", size, "torch autograd", "the largest gradient: each is used up at once")


def _gradients(lines: list[Term], plan: Layout, instant: Instant, size: int) -> list[Term]:
    """Those that exist at the instant."""
    lines = plan.gradient_lines(lines, instant)
    if not size or sum(line.size for line in lines) == size:
        return lines if size else []
    if plan.in_backward and size == plan.largest_gradient:
        return [_in_hand(size)]
    done = min(instant.gradient_elements, plan.trainable)
    if plan.trainable and -(-plan.gradients * done // plan.trainable) == size:
        formula = f"{plan.gradients:,} B x {done:,} / {plan.trainable:,} trainable elements"
        return [Term("gradients", formula, size, "torch autograd", "the gradients that exist by then")]
    return lines


def _balanced(name: str, lines: list[Term], size: int, estimate: Estimate) -> list[Term]:
    """The lines, where they sum to `size`; else those that are surely there, and the rest in one line."""
    if not size:
        return []
    held = sum(line.size for line in lines)
    if held == size:
        return [line for line in lines if line.size or line.source]
    if held > size:
        lines = [line for line in lines if line.source == runtime.WORKSPACE and line.size <= size]
        held = sum(line.size for line in lines)
    if held == size:
        return lines
    phase = estimate.peak_phase
    rest = PHASES.get((phase, name)) or f"{REST.get(name, 'more')} ({phase.replace('_', ' ')})"
    return [*lines, Term(name, f"{size - held:,} B", size - held, "", rest)]
