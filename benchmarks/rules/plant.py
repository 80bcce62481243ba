"""One mistake written into one published config, which is checked before and after."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.unknown_keys_policy import own_source
from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.rules.engine import run
from gpulint.rules.expression import UNKNOWN, evaluate
from gpulint.rules.facts.facts import Facts
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError
from gpulint.source.edit.edit import EditError, apply, change

from .mistake import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpulint.finding import Finding
    from gpulint.launchers.reading import Opened
    from gpulint.rules.rule import Rule, Selection
    from gpulint.source.document import Document
    from gpulint.source.node import Node

    from .files import File
    from .mistake import Mistake


class Planted(NamedTuple):
    """What came of one planting.

    outcome  `there`: the rule fires on the file as published; `unwritten`: the file cannot hold the keys; `found` on a
             line that was written, or anywhere where the mistake is that keys are missing; `elsewhere`; `excused`: a
             part of the condition is false; `unknown`: one rests on something unknown; `silent`: neither
    why      that part, or where the finding is
    company  rules besides the example's with findings that the file as published has not, and the message of one
    """

    rule: str
    path: str
    outcome: str
    why: str = ""
    company: tuple[tuple[str, str], ...] = ()


class Checked(NamedTuple):
    """The jobs of a file and their findings."""

    opened: list[Opened]
    findings: list[Finding]


class Field:
    """A copy of a corpus to plant in, and the rules that are run."""

    def __init__(self, selection: Selection) -> None:
        rules = tuple(rule._replace(suggest=()) for rule in selection.rules)
        self.selection = selection._replace(rules=rules)
        self.as_published = lru_cache(maxsize=512)(self.checked)

    def checked(self, path: str, root: str, hardware: tuple[tuple[str, Any], ...]) -> Checked:
        """The file as it is on disk, on that hardware."""
        settings = Settings(root=root).with_options(**dict(hardware))
        try:
            opened = open_jobs(recognise_file(path), settings).opened
            return Checked(
                opened, [found for job in opened for found in run(job.reading, job.project, job.gpu, self.selection)]
            )
        except (SourceError, UnrecognisedError, NoJobError):
            return Checked([], [])

    def plant(self, file: File, mistake: Mistake, rule: Rule, conditions: list[str], *, model: bool) -> Planted:
        """Write a mistake into a file, with its model or without, and check the file."""
        hardware = tuple(mistake.hardware.items())
        before = self.as_published(file.path, file.root, hardware)
        if any(found.rule == rule.id for found in before.findings):
            return Planted(rule.id, file.path, "there")
        config = next((job.reading.config for job in before.opened if job.reading.config.path == file.path), None)
        if config is None:
            return Planted(rule.id, file.path, "unwritten", "no job on this hardware")
        try:
            text, keys = _written(config, mistake, before, model=model)
        except EditError as error:
            return Planted(rule.id, file.path, "unwritten", str(error))
        with _on_disk(file.path, text, mistake.files):
            after = self.checked(file.path, file.root, hardware)
        known = {(found.rule, found.message) for found in before.findings}
        company = {
            found.rule: found.message
            for found in after.findings
            if found.rule not in mistake.company and (found.rule, found.message) not in known
        }
        told = [found for found in after.findings if found.rule == rule.id]
        job = next((job for job in after.opened if job.reading.config.path == file.path), None)
        if told:
            lines = {*_lines(job.reading.config.root, keys)} if job is not None else set()
            places = [place for found in told for place in (found.location, *found.related)]
            near = not keys or any(place.path != file.path or place.span.line in lines for place in places)
            outcome, why = ("found", "") if near else ("elsewhere", f"line {told[0].location.span.line}")
        else:
            outcome, why = self._excuse(job, rule, conditions, after)
        return Planted(rule.id, file.path, outcome, why, tuple(sorted(company.items())))

    def _excuse(self, job: Opened | None, rule: Rule, conditions: list[str], after: Checked) -> tuple[str, str]:
        """Why the rule is silent: the first part of its condition that is false, else one that is unknown."""
        if job is None:
            return "excused", "the file is no job any more"
        if rule.each:
            own = own_source(job.reading.upstream, job.reading.config.path, job.project.root or "")
            where = "the file stands among the sources of its own tool"
            return ("excused", where) if own else ("unknown", "no problem of that kind is reported")
        facts = Facts(job.reading, job.project, job.gpu)
        parts = rule.when[1:] if rule.when[0] == "and" and len(conditions) > 1 else [rule.when]
        said = [(evaluate(part, facts), text) for part, text in zip(parts, conditions, strict=True)]
        for value, text in said:
            if value is not UNKNOWN and not value:
                return "excused", text
        for value, text in said:
            if value is UNKNOWN:
                return "unknown", text
        group = {other.id for other in self.selection.rules if rule.group and other.group == rule.group}
        told = next((found.rule for found in after.findings if found.rule in group), None)
        return ("excused", f"{told} of its group tells it") if told is not None else ("silent", "")


def _written(config: Document, mistake: Mistake, before: Checked, *, model: bool) -> tuple[str, list[str]]:
    """The text of the file with the mistake, and the keys that were written. Raises EditError."""
    root = config.root
    values = {_spelt(root, key): value for key, value in mistake.values.items()}
    if model:
        stated = next(job.reading.job.origins.get("model") for job in before.opened if job.reading.config is config)
        if stated is None or not stated.key or stated.file != config.path or mistake.model is None:
            raise EditError("the model stands elsewhere")
        values[stated.key] = mistake.model
    for key in [key for key in values if _in_a_switch(root, key)]:
        head, _, rest = key.partition(".")
        values[head] = {rest: values.pop(key)}
    absent = [key for key in (_spelt(root, key) for key in mistake.absent) if root.find(key) is not None]
    edits = change(config, values, [key for key in absent if key not in values])
    if not edits:
        raise EditError("the file says that already")
    return apply(_text(config), edits), [*values]


def _in_a_switch(root: Node, key: str) -> bool:
    """Whether the parent of a key is written as true or false: `compile: false`."""
    entry = root.find(key.partition(".")[0])
    return "." in key and entry is not None and isinstance(entry.value.value, bool)


def _text(config: Document) -> str:
    with open(config.path, encoding="utf-8", newline="") as file:
        return file.read()


def _spelt(root: Node, key: str) -> str:
    """The key as the file spells it: with dashes or underscores, and with `--` in the mapping that holds flags."""
    flags = next((entry.key.value for entry in root.entries() if _holds_flags(entry.value)), None)
    wanted = f"{flags}.--{key}" if flags is not None else key
    plain = wanted.replace("-", "_")
    return next((name for name, _ in leaves(root) if name.replace("-", "_") == plain), wanted)


def _holds_flags(node: Node) -> bool:
    return node.is_mapping and any(name.startswith("--") for name in node.keys())  # noqa: SIM118


def _lines(root: Node, keys: list[str]) -> Iterator[int]:
    for key in keys:
        entry = root.find(key)
        if entry is not None:
            yield entry.key.span.line
            yield from range(entry.value.span.line, entry.value.span.end_line + 1)


@contextmanager
def _on_disk(path: str, text: str, files: dict[str, Document]) -> Iterator[None]:
    """The file with another text, and further files beside it, for a while."""
    written = {path: text, **{os.path.join(os.path.dirname(path), name): held.text for name, held in files.items()}}
    before: dict[str, bytes | None] = {}
    for name, words in written.items():
        before[name] = _bytes(name)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "w", encoding="utf-8", newline="") as file:
            file.write(words)
    try:
        yield
    finally:
        for name, content in before.items():
            if content is None:
                os.remove(name)
            else:
                with open(name, "wb") as old:
                    old.write(content)


def _bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def conditions_of(when: Any) -> list[str]:
    """The parts of a condition as its rule file writes them."""
    return [str(part) for part in when] if isinstance(when, list) else [str(when)]
