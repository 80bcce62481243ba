"""Credentials in the text of a file, found by the forms that their issuers give them, never printed."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..formats.core.format import Problem
from ..source.places import places_of
from ..source.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..source.document import Document

LEAST_CHARACTERS = 12
"""Different characters that a credential has at least; fewer are a placeholder such as `hf_xxxxxxxx`."""

MAX_FOUND = 20

_HINTS = re.compile(
    r"hf_|api_org_|(?i:wandb|secret)|AKIA|gh[pousr]_|github_pat_|glpat-|sk-|AIza|nvapi-|xox|PRIVATE KEY"
)
_PLACEHOLDER = re.compile(r"(?i)your|example|placeholder|changeme|dummy|redacted|xxxx|\*\*\*|1234567890|abcdefghij")


class _Form(NamedTuple):
    kind: str
    start: str
    pattern: re.Pattern[str]
    revoke: str


def secrets(document: Document) -> Iterator[Problem]:
    """A problem for every credential that stands in the text of a file."""
    text = document.text
    if _HINTS.search(text) is None:
        return
    places = places_of(text)
    number = 0
    for form in _forms():
        if form.start.lower() not in text.lower():
            continue
        for match in form.pattern.finditer(text):
            value = match["value"]
            keyed = form.kind == "private key"
            if not keyed and (len(set(value)) < LEAST_CHARACTERS or _PLACEHOLDER.search(value)):
                continue
            number += 1
            if number > MAX_FOUND:
                return
            start, end = match.span("value")
            values = {"found": form.kind, "value": f"{len(value)} characters", "path": form.revoke}
            yield Problem("secret", "", places.span(start, end), values, document.path)


@cache
def _forms() -> tuple[_Form, ...]:
    rows = read_table(__file__, "secrets.json")["secrets"]
    return tuple(_Form(row["kind"], row["start"], re.compile(row["pattern"]), row["revoke"]) for row in rows)
