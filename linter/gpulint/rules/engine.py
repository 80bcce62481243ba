"""Findings of the rules that hold: their places, words and suggestions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..finding import Finding
from .doubts import judged
from .evaluate import evaluate_rules
from .facts.facts import Facts
from .locate import fingerprint, locations
from .message import filled

if TYPE_CHECKING:
    from ..finding import Applicability, Suggestion
    from ..formats.core.format import Project, Reading
    from ..hardware.gpu import Gpu
    from .evaluate import Fired
    from .rule import Rule, Selection


def run(reading: Reading, project: Project, gpu: Gpu | None, selection: Selection | None = None) -> list[Finding]:
    """Everything the selected rules find in one file, in the order of its lines."""
    if selection is None:
        from .load import load_rules

        selection = load_rules()
    return checked(Facts(reading, project, gpu), selection)


def checked(facts: Facts, selection: Selection) -> list[Finding]:
    """The same of facts that are there already."""
    fired = list(evaluate_rules(facts, selection))
    findings: list[Finding] = []
    ordinals: dict[tuple[str, str, str], int] = {}
    for hit in fired:
        if hit.rule.id not in selection.muted:
            finding = _finding(hit, facts, selection, fired, ordinals)
            if finding is not None:
                findings.append(finding)
    return sorted(
        findings, key=lambda f: (f.location.path != facts.reading.config.path, f.location.path, f.location.span[:2])
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
    found = judged(hit, facts)
    facts.item = hit.item
    suggestions: tuple[Suggestion, ...] = ()
    if rule.suggest:
        from .suggest.suggest import suggestions_for

        suggestions = _vouched(suggestions_for(hit, facts, selection, fired), rule, selection)
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=found.severity,
        confidence=found.confidence,
        message=message,
        location=location,
        related=related,
        suggestions=suggestions,
        notes=(*notes, *found.notes),
        estimate=facts.told if hit.about_memory else None,
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
