"""The examples of a rule file, run as a user would run them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..formats.core.releases import read_as_stated
from ..launchers.reading import Opened, Recognised, open_jobs
from ..launchers.unreadable import unreadable
from ..settings.directives import read_directives
from ..settings.settings import Settings
from ..source.document import SourceError
from ..source.read import parse, syntax_of
from ..source.referenced import holding
from .engine import run
from .load import bundled
from .rule import Rule, RuleError, Selection
from .suppress import Seen, Silence, Use, judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..finding import Finding
    from ..source.document import Document
    from .load import RuleFile


class Outcome(NamedTuple):
    """What an example expects and what came of it, as `GPU101 at optimizer` or `GPU101`."""

    expected: tuple[str, ...]
    got: tuple[str, ...]
    findings: tuple[Finding, ...]
    text: str

    @property
    def holds(self) -> bool:
        """Whether exactly the expected findings came, at the expected keys."""
        return sorted(self.expected) == sorted(self.got)


def run_examples(file: RuleFile) -> list[Outcome]:
    """Every example of a rule, run with all stable rules and this one."""
    selection = selection_with(file.rule)
    return [run_example(example, selection, file.rule.file) for example in file.source["examples"]]


def selection_with(rule: Rule) -> Selection:
    """All stable bundled rules and `rule`, in the order of evaluation."""
    rules, recipes = bundled()
    others = [other for other in rules if other.status == "stable" and other.id != rule.id]
    return Selection(tuple(sorted([*others, rule], key=lambda item: item.order)), recipes)


def run_example(example: dict[str, Any], selection: Selection, where: str) -> Outcome:
    """One example; raises RuleError where its config is of no known format or its GPU is unknown."""
    expected = tuple(example["expect"])
    started = open_example(example, where)
    with holding(started.files):  # some rules look into further files
        findings = _found(started.opened, started.settings, selection)
    said = tuple(_said(finding, expected, started.document) for finding in findings)
    return Outcome(expected, said, findings, started.document.text)


UNREADABLE = "GPU020"
"""The rule whose examples nothing can parse."""


class Started(NamedTuple):
    """The file of an example, those beside it, the settings that count, and the jobs that it is or starts."""

    document: Document
    files: dict[str, Document]
    settings: Settings
    opened: Sequence[Opened]


def open_example(example: dict[str, Any], where: str) -> Started:
    """The jobs of an example, beside its own files alone; raises as `run_example` does."""
    from ..formats.core.format import Project
    from ..formats.core.registry import recognise
    from ..hardware.catalogue import find

    name = example.get("file", "config.yaml")
    settings = Settings(**example.get("settings", {}))
    try:
        document = parse(config_text(example), name, _syntax(name))
    except SourceError as error:
        if UNREADABLE not in example["expect"]:
            raise
        jobs = unreadable(example.get("format", name), config_text(example), error, _syntax(name), settings)
        return Started(jobs.opened[0].reading.config, {}, settings, jobs.opened)
    form = recognise(document)
    files = {path: parse(held, path, _syntax(path)) for path, held in _files(example).items()}
    if form is None:
        return _launched(example, document, files, settings, where)
    gpu = find(example["gpu"]) if example.get("gpu") else None

    def open_reference(reference: str, from_path: str) -> Document | None:  # noqa: ARG001
        return files.get(os.path.normpath(reference))

    hardware = (example.get("gpus"), example.get("nodes"))
    project = Project(".", gpu, *hardware, open_reference, versions=settings.versions)
    opened = Opened(read_as_stated(form, document, project), project, gpu, read_directives(document))
    return Started(document, files, settings, [opened])


def _files(example: dict[str, Any]) -> dict[str, str]:
    return {os.path.normpath(path): text for path, text in example.get("files", {}).items()}


def _launched(
    example: dict[str, Any], document: Document, files: dict[str, Document], settings: Settings, where: str
) -> Started:
    """A launcher file that starts jobs with flags, or with the example's own files."""
    from ..launchers.registry import recognise

    launcher = recognise(document)
    if launcher is None:
        raise RuleError(where, f"an example has no known format: {document.text[:60]!r}")
    hardware = {name: example.get(name) for name in ("gpu", "gpus", "nodes")}
    settings = replace(settings, root=".").with_options(**hardware)
    with holding(files):
        jobs = open_jobs(Recognised(document, None, launcher), settings)
        return Started(document, files, settings, [*jobs.opened, *jobs.bare])


def _found(opened: Sequence[Opened], settings: Settings, selection: Selection) -> tuple[Finding, ...]:
    """What the rules find in the jobs of a file, each once, and what they find of its suppressions."""
    found: dict[tuple[object, ...], Finding] = {}
    seen: list[Seen] = []
    used: set[Use] = set()
    for job in opened:
        silence = Silence(job, settings)
        for item in run(job.reading, job.project, job.gpu, selection):
            if not silence.hides(item):
                found.setdefault((item.rule, item.location, item.message), item)
        seen += silence.seen()
        used |= silence.used
    idle = judged(seen, used, selection, settings) if any(item.directives.ignores for item in seen) else []
    return (*found.values(), *idle)


def config_text(example: dict[str, Any]) -> str:
    """The example's file; a mapping is written as JSON."""
    config = example["config"]
    return config if isinstance(config, str) else json.dumps(config, indent=2) + "\n"


def _said(finding: Finding, expected: tuple[str, ...], document: Document) -> str:
    """`ID at key` where the example expects the finding at a key, or on a line with that word, else the id."""
    for text in expected:
        rule, _, key = text.partition(" at ")
        if rule == finding.rule and key:
            entry = document.root.find(key)
            line = finding.location.span.line
            if entry is not None:
                lines = {entry.key.span.line, entry.value.span.line}
            else:  # a flag in a script or a manifest
                lines = {line} if key in document.text.splitlines()[line - 1] else set()
            if line in lines:
                return text
    return finding.rule


def _syntax(name: str) -> str:
    return syntax_of(name) or "yaml"
