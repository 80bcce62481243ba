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


class Context(NamedTuple):
    """What some formats need besides the report; the functions are called only by those that do.

    `once` and `most` are for outputs that people read: whether a fact of many files is told once, and how many lines
    of findings are shown.
    """

    version: str
    colour: bool
    quiet: bool
    width: int
    links: bool
    rules: Callable[[], Sequence[RuleText]]
    cards: Callable[[], Sequence[Card]]
    once: bool = False
    most: int | None = None


def render(name: str, report: Report, context: Context) -> str:
    """The report in one format."""
    name = "full" if name == "text" else name
    module = import_module(f".{FORMATS[name]}", __package__)
    report = masked_report(report)
    once, totals = context.once, not context.quiet
    if name == "full":
        text: str = module.render(
            report,
            colour=context.colour,
            totals=totals,
            width=context.width,
            links=context.links,
            once=once,
            most=context.most,
        )
    elif name == "grouped":
        text = module.render(report, colour=context.colour, totals=totals, once=once, most=context.most)
    elif name == "concise":
        text = module.render(report, colour=context.colour, totals=totals, once=once)
    elif name in ("github", "azure", "markdown"):
        text = module.render(report, once=once)
    elif name == "sarif":
        text = module.render(report, context.rules(), context.version)
    elif name == "html":
        text = module.render(report, context.cards(), context.version)
    else:
        text = module.render(report)
    return text
