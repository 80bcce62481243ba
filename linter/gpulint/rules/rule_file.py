"""A rule file, declared: `schemas/rule.json` is made of it, and team rules are held against that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ..declared import Keywords, declared
from ..settings.severity import Severity

Confidence = Literal["high", "medium", "low"]
Kind = Literal["training", "inference"]
Status = Literal["preview", "stable", "deprecated"]
Line = Annotated[str, Keywords(maxLength=2000)]
Condition = Annotated[str, Keywords(maxLength=1000)] | bool | Annotated[list[str], Keywords(maxItems=32)]
RecipeName = Annotated[str, Keywords(description="The name of a recipe, or `search`.")]


@dataclass(kw_only=True)
class AppliesTable:
    """To which jobs and files the rule applies; default all."""

    kind: Kind = declared("Only jobs of this kind.", None)
    formats: list[str] = declared("Only files of these formats; docs/formats.md lists them.", None, maxItems=64)


@dataclass(kw_only=True)
class AdviceTable:
    """A change to Job fields or to keys of the file."""

    set: dict[str, Any] = declared("Job fields to change; a value that begins with `= ` is an expression.", None)
    config: dict[str, Any] = declared(
        "Keys of the file to set, deepspeed.<key> for those of the DeepSpeed config; null removes a key.", None
    )
    rename: dict[str, str] = declared(
        "Keys of the file to rename, old to new; item.<value> is a value of the problem.", None
    )
    needs: str = declared("Tried only if this condition holds.", None)
    factors: list[int] = declared(
        "Values of `factor` in `set`, tried in order until one resolves the finding.", None, maxItems=32
    )
    fix: Literal["safe", "unsafe"] = declared("safe: the job computes the same. unsafe (default): it may not.", None)
    rank: int = declared("Recipes: how much it changes the run, lowest first.", None)
    family: str = declared("Recipes: only the best of a family is shown.", None)
    excludes: list[str] = declared("Recipes: families that it cannot be combined with.", None)
    text: str = declared("Text to show instead of the format's own; {expression} placeholders.", None, maxLength=2000)
    kind: Kind = declared("Recipes: the kind of job that it applies to.", None)
    between: bool = declared("Recipes: the strongest factor may not help although a weaker one does.", None)
    room: bool = declared("Recipes: uses free memory instead of saving memory.", None)
    cost: str = declared("Recipes: what it costs the run.", None, maxLength=200)
    otherwise: str = declared("Recipes: what it needs, shown if it does not apply.", None, maxLength=200)


@dataclass(kw_only=True)
class ExampleTable:
    """A config and what a check of it must find."""

    config: str | dict[str, Any] = declared("The config, as text or as a mapping.")
    expect: list[str] = declared("Rule ids, or `ID at key`; every finding of the file is listed.")
    file: str = declared("The file's name; the extension sets the syntax. Default config.yaml.", None)
    files: dict[str, str] = declared("Files that the config refers to, by path.", None)
    gpu: str = declared("The GPU to check against; without one memory rules do not run.", None)
    gpus: int = declared("Number of GPUs of the job.", None)
    nodes: int = declared("Number of nodes.", None)
    settings: dict[str, Any] = declared("Settings of the run, as `gpulint.Settings` takes them.", None)


@dataclass(kw_only=True)
class RuleTable:
    """One rule: the policy, its documentation and its tests."""

    id: str = declared(
        "Never reused. GPU is reserved for gpulint's own rules.",
        pattern="^[A-Z]{2,12}[0-9]{3,4}$",
        examples=["TEAM001"],
    )
    name: str = declared(
        "Name of the problem; used in suppressions.",
        pattern="^[a-z0-9]+(-[a-z0-9]+)+$",
        examples=["batch-above-agreed"],
    )
    since: str = declared(
        "The first gpulint version with the rule, in quotes.",
        pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$",
        examples=["1.0"],
    )
    status: Status = declared("preview (runs on request), stable, or deprecated (runs only if selected by name).")
    severity: Severity = declared(
        "error: the job fails or is wrong. warning: it may fail. info: waste, or worth knowing."
    )
    confidence: Confidence = declared("How reliable a finding of the rule is.")
    when: Condition = declared("An expression over the facts, or several that must all hold.")
    at: list[str | dict[str, str]] = declared(
        "Location of the finding: Job fields, config.<key>, deepspeed.<key> or item; the first one that is set in a "
        "file.",
        maxItems=16,
    )
    message: Line = declared("What is wrong, with figures: text with {expression} placeholders.")
    why: str = declared("Why it matters: what happens in the job.")
    examples: list[ExampleTable] = declared("The tests: at least one that fires and one that does not.", maxItems=64)
    what: str = declared("What the rule finds, in one sentence; shown in the index.", None)
    limits: str = declared("What the rule does not see.", None)
    references: list[str] = declared("Upstream sources: code, documentation, issues.", None, maxItems=64)
    applies: AppliesTable = declared("To which jobs and files the rule applies; default all.", None)
    each: str = declared(
        "Run once for every problem of that kind; `item` is the problem.",
        None,
        pattern=r"^problems\.[a-z]+(-[a-z]+)*$",
        examples=["problems.unknown-key"],
    )
    group: str = declared(
        "Rules of a group give one finding per file: the first that fires, by priority, then id.", None, maxLength=80
    )
    priority: int = declared("Order of evaluation, lowest first; default 0.", None)
    notes: list[Line] = declared("Additional lines; a line with unknown values is left out.", None, maxItems=16)
    suggest: list[RecipeName | AdviceTable] = declared(
        "What to do, best first. Each is tried in memory and shown only if it resolves the finding; one of `text` alone"
        " is shown as it is.",
        None,
        maxItems=32,
    )
