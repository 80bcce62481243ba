"""The mistake of an example: the fewest keys that make its rule fire, and the keys that would make it silent.

Nothing here knows what a rule says. Keys are taken out of the example one after another, and those stay without which
the rule no longer fires, or that no longer fire with the value of a silent example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint.formats.core.format import NoJobError
from gpulint.rules.engine import run
from gpulint.rules.examples import open_example
from gpulint.rules.suggest.change import reread
from gpulint.source.edit.edit import EditError, change
from gpulint.source.referenced import holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpulint.formats.core.format import Reading
    from gpulint.launchers.reading import Opened
    from gpulint.rules.load import RuleFile
    from gpulint.rules.rule import Selection
    from gpulint.source.document import Document
    from gpulint.source.node import Node

Example = dict[str, Any]


class Mistake(NamedTuple):
    """What to write into a config of `format` to make a mistake.

    objective  what the example's job trains for, and the release that it is read as
    values     keys with their values
    model      the example's model
    by_model   whether the model makes the mistake
    absent     keys that must not be there
    files      further files, which the keys name
    hardware   GPU, GPUs and nodes
    company    rules that fire on the example
    """

    rule: str
    format: str
    kind: str
    objective: tuple[str, str]
    values: dict[str, Any]
    model: str | None
    by_model: bool
    absent: tuple[str, ...]
    files: dict[str, Document]
    hardware: dict[str, Any]
    company: frozenset[str]


def mistakes(file: RuleFile, selection: Selection) -> list[Mistake]:
    """The mistakes of a rule's firing examples, each once; none where no change of keys makes one."""
    if file.rule.each == "duplicate-key":  # no change of keys writes one twice
        return []
    alone = selection._replace(rules=(file.rule._replace(suggest=()),))
    found: dict[str, Mistake] = {}
    examples = file.source["examples"]
    silent = [example for example in examples if not example["expect"]]
    for example in examples:
        if any(said.split(" ")[0] == file.id for said in example["expect"]):
            made = _mistake(file, example, silent, alone)
            if made is not None:
                same = (made.format, made.by_model, sorted(made.values.items(), key=repr))
                found.setdefault(repr(same), made)
    return [*found.values()]


def leaves(node: Node, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a tree with their plain values; lists are values."""
    for entry in node.entries():
        name = entry.key.value
        if not isinstance(name, str):
            continue
        if entry.value.is_mapping and entry.value.entries():
            yield from leaves(entry.value, f"{prefix}{name}.")
        else:
            yield prefix + name, entry.value.plain()


class _Trial:
    """One job of an example, written anew with other keys to see whether the rule still fires."""

    def __init__(self, opened: Opened, files: dict[str, Document], alone: Selection) -> None:
        self.opened = opened
        self.files = files
        self.alone = alone

    def fires(self, remove: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> bool | None:
        """Whether the rule fires with keys taken out or written; None where that cannot be, or is no job any more."""
        reading: Reading | None = self.opened.reading
        project = self.opened.project
        with holding(self.files):
            if remove or values:
                try:
                    reading = reread(self.opened.reading, project, change(self.opened.reading.config, values, remove))
                except (EditError, NoJobError):
                    return None
            return bool(run(reading, project, self.opened.gpu, self.alone)) if reading is not None else None


def _mistake(file: RuleFile, example: Example, silent: list[Example], alone: Selection) -> Mistake | None:
    started = open_example(example, file.rule.file)
    own = [opened for opened in started.opened if opened.reading.config.path == started.document.path]
    trials = [trial for opened in own if (trial := _Trial(opened, started.files, alone)).fires()]
    if not trials:
        return None
    trial = trials[0]
    reading = trial.opened.reading
    spare: list[str] = []
    needed = _needed(trial, reading.config.root, spare)
    stated = reading.job.origins.get("model")
    model = dict(leaves(reading.config.root)).get(stated.key or "") if stated is not None else None
    by_model = stated is not None and needed.pop(stated.key or "", None) is not None
    kept, absent = _excuses(file, trial, spare, silent)
    values = {**needed, **kept}
    if not values and not by_model and not absent:
        return None
    return Mistake(
        file.id,
        reading.format,
        reading.job.kind,
        about(reading),
        values,
        model if isinstance(model, str) else None,
        by_model,
        absent,
        started.files,
        {name: example.get(name) for name in ("gpu", "gpus", "nodes")},
        frozenset(said.split(" ")[0] for said in example["expect"]),
    )


def about(reading: Reading) -> tuple[str, str]:
    """What a job is for, and the first word of the release that it is read as."""
    return reading.job.objective or "", reading.upstream.partition(" ")[0]


def _needed(trial: _Trial, node: Node, spare: list[str], prefix: str = "") -> dict[str, Any]:
    """The keys without which the rule is silent, with their values; those without which it fires are added to spare."""
    needed: dict[str, Any] = {}
    for entry in node.entries():
        if not isinstance(entry.key.value, str):
            continue
        key = prefix + entry.key.value
        said = trial.fires((*spare, key))
        if said:
            spare.append(key)
            continue
        inside = _needed(trial, entry.value, spare, f"{key}.") if entry.value.is_mapping else {}
        if inside:
            needed |= inside
        elif said is False:
            needed[key] = entry.value.plain()
    return needed


def _excuses(
    file: RuleFile, trial: _Trial, spare: list[str], silent: list[Example]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Keys whose value in a silent example silences the firing one: with its own value, or to be absent."""
    reading = trial.opened.reading
    own = dict(leaves(reading.config.root))
    kept: dict[str, Any] = {}
    absent: list[str] = []
    for example in silent:
        for opened in open_example(example, file.rule.file).opened:
            if opened.reading.format != reading.format:
                continue
            for key, value in leaves(opened.reading.config.root):
                if key in kept or key in absent or own.get(key) == value:
                    continue
                left = [other for other in spare if other != key]
                if (key not in own or key in spare) and trial.fires(left, {key: value}) is False:
                    if key in own:
                        kept[key] = own[key]
                    else:
                        absent.append(key)
    return kept, tuple(absent)
