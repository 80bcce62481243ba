"""The output formats by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..finding import Report
    from ..rules.load import RuleText

FORMATS = {
    "full": "full",
    "concise": "concise",
    "grouped": "grouped",
    "json": "json_report",
    "json-lines": "json_lines",
    "rdjson": "rdjson",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
    "azure": "azure",
    "markdown": "markdown",
}
"""The module of each; "text" is another name of "full"."""

_FOR_PEOPLE = ("full", "concise", "grouped")


def render(name: str, report: Report, *, colour: bool, version: str, rules: Callable[[], Sequence[RuleText]]) -> str:
    """The report in one format."""
    name = "full" if name == "text" else name
    module = import_module(f".{FORMATS[name]}", __package__)
    if name in _FOR_PEOPLE:
        text: str = module.render(report, colour=colour)
    elif name == "sarif":
        text = module.render(report, rules(), version)
    else:
        text = module.render(report)
    return text
