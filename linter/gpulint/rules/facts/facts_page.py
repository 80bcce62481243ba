"""The page of facts: everything that a condition or a placeholder can name, with type, unit and meaning."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...declared import meaning_of
from ...job.job import job_fields
from ..syntax import ARITY
from .facts import FACTS
from .job_types import job_types, type_text
from .vocabulary import ITEM_VALUES, PROBLEM_KINDS, unit_of_fact

if TYPE_CHECKING:
    from collections.abc import Iterable

FAMILIES = {
    "config.<key>": ("any", "The value of a key of the checked file; null if it is not set."),
    "option.<name>": (
        "any",
        "The value of a server's option, or of a key in one, by its first name with underscores, however written.",
    ),
    "deepspeed.<key>": ("any", "The value of a key of the DeepSpeed config in use, in whichever file it is."),
    "origin.<field>": (
        "text",
        "Where a Job field comes from: `file`, `default`, `assumed`, `derived`, `comment`, `command line` ...",
    ),
    "launch.<name>": (
        "any",
        "What the launcher of the job sets (`launch.kind`, `launch.environment.NCCL_DEBUG`); unknown without one.",
    ),
    "versions.<package>": ("text", "The version of a package, set by a launcher or the settings."),
    "item.<value>": ("text", "In rules with `each`: a value of the problem; see below."),
}
"""Names that stand for many, with the type of their values."""

FUNCTIONS = {
    "min": "the smallest of several numbers, or of a list",
    "max": "the largest of several numbers, or of a list",
    "ceil": "rounded up to a whole number",
    "floor": "rounded down to a whole number",
    "len": "the length of a text or list",
    "any_of": "whether a value, or one of a list, is among the second list",
    "number": 'a number, also from a text such as `"2e-4"`',
    "lower": "a text in lower case",
    "starts_with": "whether a text begins with another",
    "parts": "the items of a list, or of text with commas",
    "words": "the items of a list, or of text with blanks between",
    "distinct": "the items of a list, or of text with commas, each once",
    "divisors": "the divisors of a whole number up to 4,096, in order",
    "next_of": "the smallest number of a list that is not below another: `next_of([8, 16, 32], adapter.r)`",
    "ends_with": "whether a text ends with another",
    "known": "whether a fact is known and not null",
    "default": "a fact, or the second value if the fact is unknown or null",
    "has": "whether a key is set in the file, even to null: `has(config.lora_r)`",
    "peak_if": 'memory of one GPU with the given Job fields changed: `peak_if("packing", false)`',
}


_HEAD = """\
# Facts

The names that conditions (`when`, `needs`) and placeholders (`{...}` in messages) can use; `gpulint rules facts`
prints this list. They are Python expressions over these names: comparisons, `and or not in`, `+ - * / // %`,
`x if y else z`, lists, and the functions below. A rule does not fire if a fact it needs cannot be derived. Sizes are
written as `80 * GiB` (`KiB`, `MiB`, `GiB`, `TiB`); bytes cannot be compared with plain numbers."""

_JOB = """\
## Fields of the Job

What the config sets, in any format. A section (`adapter`) is true if the job has it, else null; a field is null if
it is not set and the tool has no default."""

_PROBLEMS = """\
## Problems

A rule with `each: problems.<kind>` runs once for every such problem of the file, and points at it with `at: [item]`."""


class Row(NamedTuple):
    """A line of the page."""

    name: str
    type: str
    unit: str
    meaning: str


@cache
def job_meanings() -> dict[str, str]:
    """What every Job field means, as it declares."""
    return {path: meaning_of(item.metadata) for path, item in job_fields()}


def fact_rows() -> list[Row]:
    """The named facts, sorted."""
    return [Row(path, item.type, item.unit, item.meaning) for path, item in sorted(FACTS.items())]


def job_rows() -> list[Row]:
    """The fields of the Job, in its order."""
    meanings = job_meanings()
    return [Row(path, type_text(kind), unit_of_fact(path), meanings[path]) for path, kind in job_types().items()]


def page() -> str:
    """The page in Markdown."""
    functions = (Row(name, _arity(*ARITY[name]), "", meaning) for name, meaning in sorted(FUNCTIONS.items()))
    families = (Row(name, kind, "", meaning) for name, (kind, meaning) in FAMILIES.items())
    named = ("type", "unit", "meaning")
    blocks = [
        _HEAD,
        "## Facts about the job, its model, its memory and its GPU",
        _table(("fact", *named), fact_rows()),
        _JOB,
        _table(("field", *named), job_rows()),
        "## Keys, origins, versions",
        _table(("name", *named), families),
        _PROBLEMS,
        _pairs("kind", "what it is", PROBLEM_KINDS.items()),
        _pairs(
            "value",
            "what it is, where the problem has it",
            ((f"item.{name}", text) for name, text in ITEM_VALUES.items()),
        ),
        "## Functions",
        _table(("function", "arguments", "result"), functions, unit=False),
    ]
    return "\n\n".join(blocks) + "\n"


def _pairs(name: str, meaning: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {name} | {meaning} |", "|---|---|", *(f"| `{key}` | {text} |" for key, text in rows)])


def _table(head: tuple[str, ...], rows: Iterable[Row], *, unit: bool = True) -> str:
    lines = []
    for row in rows:
        cells = (f"`{row.name}`", row.type, *((row.unit or "-",) if unit else ()), row.meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines])


def _arity(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
