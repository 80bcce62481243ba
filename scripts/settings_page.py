"""The table of keys in `docs/settings.md`, from `linter/gpulint/settings/keys.py`."""

from __future__ import annotations

import re

from gpulint.settings.keys import FAIL_ON, KEYS

_TYPES = {
    "str": "string",
    "int": "whole number",
    "bool": "true or false",
    "FailOn": ", ".join(f"`{choice}`" for choice in FAIL_ON),
    "Strings": "list of strings",
    "Versions": "table of strings",
    "Globs": "table of lists",
    "Severities": "table of severities",
}
MARK = re.compile(r"(<!-- keys -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def page(text: str) -> str:
    """`docs/settings.md` with its table of keys made anew."""
    rows = ["| key | takes | meaning |", "|---|---|---|"]
    rows += [f"| `{k.name}`{' *' if k.layered else ''} | {_TYPES[k.type]} | {k.meaning} |" for k in KEYS.values()]
    table = "\n".join(rows) + "\n"
    return MARK.sub(lambda match: match[1] + table + match[2], text)
