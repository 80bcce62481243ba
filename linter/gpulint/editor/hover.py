"""What an editor shows at the pointer, as Markdown: a key's meaning and what it costs, or the estimate."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..formats.core.key_help import NO_DEFAULT
from ..report.printable import printable
from ..rules.facts.facts_page import job_meanings
from ..source.tables import read_table
from ..units import bytes_text
from .cursor import fields_at, key_at, rows_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..estimator.estimate import Estimate
    from ..formats.core.key_help import KeyHelp
    from .cursor import Key
    from .reading import Plan, Read


class Hover(NamedTuple):
    """Markdown, and the piece of the text that it speaks of."""

    text: str
    start: int
    end: int


def hover(read: Read, path: str, text: str, offset: int) -> Hover | None:
    """The help at an offset: of a key and its value; at the model and on a first line without keys, the estimate."""
    key = key_at(read, path, _behind_dashes(text, offset))
    if key is not None:
        about = [*_about(read, path, key)]
        return Hover("\n\n".join([f"**{code(key.dotted)}**", *about]), key.start, key.end) if about else None
    first = text.find("\n")
    if offset <= (first if first >= 0 else len(text)):
        estimates = "\n\n".join(_estimates(read.jobs))
        return Hover(estimates, 0, first if first >= 0 else len(text)) if estimates else None
    return None


def _behind_dashes(text: str, offset: int) -> int:
    """Where the name of a flag begins, for an offset at its dashes."""
    if text.startswith("--", offset):
        return offset + 2
    return offset + 1 if offset and text.startswith("--", offset - 1) else offset


def describe(key: KeyHelp) -> str:
    """Fate, type and default of a key, and the release that says so."""
    kind = [plain(key.type)] if key.type else []
    default = [f"default {code(written(key.default))}"] if key.default is not NO_DEFAULT else []
    said = ", ".join([*kind, *default])
    return "; ".join([*([f"**{plain(key.old)}**"] if key.old else []), *([said] if said else []), key.upstream])


def written(value: Any) -> str:
    """A value as configs write it."""
    import json

    return value if isinstance(value, str) and value else json.dumps(value)


def code(text: str) -> str:
    """A code span that its text cannot end."""
    text = printable(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def plain(text: str) -> str:
    """Text of which Markdown reads only code spans."""
    return re.sub(r"([\\*_{}\[\]<>#|~])", r"\\\1", printable(text))


def _about(read: Read, path: str, key: Key) -> Iterator[str]:
    if key.help is not None:
        yield describe(key.help)
    fields = list(dict.fromkeys(name for plan in read.jobs for name in fields_at(plan, path, key)))
    fields = fields or list(dict.fromkeys(row.field for row in rows_at(read, key.dotted)))
    for name in fields[:MAX_FIELDS]:
        meaning = job_meanings().get(name)
        if meaning:
            yield f"{meaning} ({code(name)} of the job)"
    if "model" in fields:
        yield from _estimates(read.jobs)
        return
    for plan in read.jobs[:MAX_JOBS]:
        cost = _cost(plan, [*fields_at(plan, path, key)])
        if cost:
            part = f"{code(plan.opened.part)}: " if len(read.jobs) > 1 and plan.opened.part else ""
            yield part + cost


MAX_FIELDS, MAX_JOBS = 4, 4
"""Job fields and jobs that one key's help goes through."""


def _cost(plan: Plan, fields: Sequence[str]) -> str:
    """The components that the fields affect, with their sizes at the peak."""
    estimate = plan.estimate
    names = list(dict.fromkeys(name for path in fields for name in components_of(path)))
    if estimate is None or not names:
        return ""
    sizes = [(name, estimate.components.get(name, 0)) for name in names]
    parts = [f"{name.replace('_', ' ')} {bytes_text(size)}" for name, size in sizes if size]
    return f"Affects: {', '.join(parts)} (of {bytes_text(estimate.needed)} per GPU)" if parts else ""


@cache
def _components() -> dict[str, list[str]]:

    return read_table(__file__, "components.json")


def components_of(field: str) -> Sequence[str]:
    """The components of an estimate that a Job field decides, by its longest known beginning."""
    while field and field not in _components():
        field = field.rpartition(".")[0]
    return _components()[field]


def _estimates(jobs: Sequence[Plan]) -> Iterator[str]:
    from ..report.text.estimate import render

    for plan in jobs[:MAX_JOBS]:
        name = plan.opened.part or plan.opened.reading.config.path.replace("\\", "/").rpartition("/")[2]
        if plan.estimate is None:
            if plan.opened.reading.job.model is not None:
                yield plain(f"{name}: {plan.reason}")
            continue
        yield _fenced(render(name, plan.estimate, fitting=_fitting_text(plan.estimate), result=plan.result))


def fitting(estimate: Estimate) -> list[str]:
    """The GPUs of the catalogue that a job fits on where none is named, the smallest first."""
    from ..hardware.catalogue import gpus

    if estimate.capacity is not None:
        return []
    found = [gpu for gpu in gpus() if estimate.fits_on(gpu)]
    return [gpu.name for gpu in sorted(found, key=lambda gpu: gpu.usable)]


def _fitting_text(estimate: Estimate) -> str:
    names = fitting(estimate)
    more = f" and {len(names) - MAX_GPUS} more" if len(names) > MAX_GPUS else ""
    nothing = "no single GPU in the catalogue" if estimate.capacity is None else ""
    return ", ".join(names[:MAX_GPUS]) + more or nothing


MAX_GPUS = 6
"""GPUs that are named where none is given."""


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
