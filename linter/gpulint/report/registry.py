"""The output formats by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from .masking import masked_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..finding import Report
    from ..rules.load import RuleText
    from ..run.overview import Card

FORMATS = {
    "full": "text.full",
    "concise": "text.concise",
    "grouped": "text.grouped",
    "json": "data.json_report",
    "json-lines": "data.json_lines",
    "rdjson": "data.rdjson",
    "sarif": "data.sarif",
    "github": "data.github",
    "gitlab": "data.gitlab",
    "junit": "data.junit",
    "azure": "data.azure",
    "markdown": "data.markdown",
    "html": "html.html",
}
"""The module of each; "text" is another name of "full"."""

_FOR_PEOPLE = ("full", "concise", "grouped")


class Context(NamedTuple):
    """What some formats need besides the report; the functions are called only by those that do."""

    version: str
    colour: bool
    quiet: bool
    width: int
    links: bool
    rules: Callable[[], Sequence[RuleText]]
    cards: Callable[[], Sequence[Card]]


def render(name: str, report: Report, context: Context) -> str:
    """The report in one format."""
    name = "full" if name == "text" else name
    module = import_module(f".{FORMATS[name]}", __package__)
    report = masked_report(report)
    if name == "full":
        text: str = module.render(
            report, colour=context.colour, totals=not context.quiet, width=context.width, links=context.links
        )
    elif name in _FOR_PEOPLE:
        text = module.render(report, colour=context.colour, totals=not context.quiet)
    elif name == "sarif":
        text = module.render(report, context.rules(), context.version)
    elif name == "html":
        text = module.render(report, context.cards(), context.version)
    else:
        text = module.render(report)
    return text
