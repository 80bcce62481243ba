"""Findings of the rules that hold: their places, words and suggestions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..estimator.inputs.objectives import ONLINE
from ..finding import Finding
from ..settings.severity import SEVERITIES
from .evaluate import evaluate_rules
from .expression import UNKNOWN
from .facts.facts import Facts
from .locate import fingerprint, locations
from .message import filled
from .rule import CONFIDENCES

if TYPE_CHECKING:
    from ..finding import Applicability, Suggestion
    from ..formats.core.format import Project, Reading
    from ..hardware.gpu import Gpu
    from ..settings.severity import Severity
    from .evaluate import Fired
    from .rule import Rule, Selection


def run(reading: Reading, project: Project, gpu: Gpu | None, selection: Selection | None = None) -> list[Finding]:
    """Everything the selected rules find in one file, in the order of its lines."""
    if selection is None:
        from .load import load_rules

        selection = load_rules()
    facts = Facts(reading, project, gpu)
    fired = list(evaluate_rules(facts, selection))
    findings: list[Finding] = []
    ordinals: dict[tuple[str, str, str], int] = {}
    for hit in fired:
        if hit.rule.id not in selection.muted:
            finding = _finding(hit, facts, selection, fired, ordinals)
            if finding is not None:
                findings.append(finding)
    return sorted(
        findings, key=lambda f: (f.location.path != reading.config.path, f.location.path, f.location.span[:2])
    )


def _finding(
    hit: Fired, facts: Facts, selection: Selection, fired: list[Fired], ordinals: dict[tuple[str, str, str], int]
) -> Finding | None:
    rule = hit.rule
    facts.item = hit.item
    message = filled(rule.message, facts)
    if message is None:
        return None
    location, related, key = locations(rule, facts)
    same = (rule.id, location.path, key)
    ordinals[same] = ordinals.get(same, 0) + 1
    notes = [note for note in (filled(template, facts) for template in rule.notes) if note]
    severity, confidence = rule.severity, rule.confidence
    if hit.about_memory:
        severity, confidence, doubts = _doubted(rule, facts)
        notes += doubts
    suggestions: tuple[Suggestion, ...] = ()
    if rule.suggest:
        from .suggest.suggest import suggestions_for

        suggestions = _vouched(suggestions_for(hit, facts, selection, fired), rule, selection)
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=severity,
        confidence=confidence,
        message=message,
        location=location,
        related=related,
        suggestions=suggestions,
        notes=tuple(notes),
        estimate=facts.estimate if hit.about_memory else None,
        fingerprint=fingerprint(rule, facts, location.path, key, ordinals[same]),
    )


def _vouched(found: tuple[Suggestion, ...], rule: Rule, selection: Selection) -> tuple[Suggestion, ...]:
    """The suggestions with their edits as safe as the settings take those of the rule to be."""
    told: Applicability | None = None
    if rule.id in selection.unsafe:
        told = "unsafe"
    elif rule.id in selection.safe:
        told = "safe"
    return tuple(replace(item, applicability=told) if told and item.edits else item for item in found)


def _doubted(rule: Rule, facts: Facts) -> tuple[Severity, str, list[str]]:
    """Severity and confidence where the estimate rests on something that this file does not settle, and what."""
    severity, confidence = rule.severity, rule.confidence
    notes: list[str] = []
    parallelism = facts.job.parallelism
    if facts.get("gpus.assumed") and (parallelism.zero is not None or parallelism.fsdp is not None):
        severity, confidence = _less_severe(severity), _lower(confidence)
        notes.append(f"assumes {facts.job.world_size} GPUs, because the number is not set")
    elif _may_shard_at_launch(facts):
        severity, confidence = _less_severe(severity), "low"
        notes.append("an accelerate config used at launch may shard the model; it is not known here")
    if _depends_on_the_data(facts):
        confidence = min(confidence, "medium", key=CONFIDENCES.index)
        usual = _usual_rows(facts)
        if usual:
            severity = _less_severe(severity)
            notes.append(f"assumes samples of the full sequence length; samples of {usual:,} tokens fit")
        else:
            notes.append("assumes samples of the full sequence length; shorter samples need less")
    if facts.model is not None and not facts.model.exact:
        confidence = _lower(confidence)
        notes.append(f"the architecture {facts.model.model_type} is unknown; estimated with a similar one")
    return severity, confidence, notes


def _depends_on_the_data(facts: Facts) -> bool:
    """Whether shorter samples would need less: rows that are neither packed nor padded, and not the state alone.

    Answers that a policy writes are never packed to a length, only laid end to end.
    """
    job = facts.job
    full = job.padded or (job.packing and job.objective not in ONLINE)
    if job.kind != "training" or full or facts.gpu is None:
        return False
    static = facts.get("estimate.static")
    return static is not UNKNOWN and static <= facts.gpu.usable


USUAL_ROWS = 1024
"""Tokens of a row that nobody finds long: the limit that TRL 1.16.0 sets by itself (`SFTConfig.max_length`)."""


def _usual_rows(facts: Facts) -> int | None:
    """The length at which rows fit where the stated one is a cap that data seldom reach; None where they do not fit.

    Such a cap is one of four usual rows or more, and the room for an answer that a policy writes itself.
    """
    limit = facts.job.sequence_length
    written = facts.job.objective in ONLINE
    if not limit or (limit < 4 * USUAL_ROWS and not written) or facts.job.objective == "ctc":
        return None
    usual = min(USUAL_ROWS, limit // 4)
    changes: dict[str, Any] = {"sequence_length": usual}
    for path in ("rl.prompt_length", "rl.completion_length"):
        length = facts.job.get(path)
        if written and length:
            changes[path] = max(1, length * usual // limit)
    shorter = facts.estimate_with(changes)
    return usual if shorter is not None and shorter.verdict != "exceeds" else None


def _may_shard_at_launch(facts: Facts) -> bool:
    """Whether the launcher decides how the GPUs share the model: Transformers arguments for several GPUs without
    DeepSpeed or FSDP of their own, which `accelerate launch --config_file` may add."""
    plan = facts.job.parallelism
    own = plan.zero is not None or plan.fsdp is not None or plan.one_process
    return facts.reading.format == "hf_trainer" and facts.job.world_size > 1 and not own


def _less_severe(severity: Severity) -> Severity:
    return SEVERITIES[max(0, SEVERITIES.index(severity) - 1)]


def _lower(confidence: str) -> str:
    return CONFIDENCES[max(0, CONFIDENCES.index(confidence) - 1)]
