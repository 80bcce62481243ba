"""Values that another program fills in: `${BATCH}`, `$MODEL`, `{{ .Values.model }}`, `<your-model>`, `???`, `...`."""

from __future__ import annotations

import re
from typing import Any

_BLANK = re.compile(
    r"\$\{[^}]*\}|\$\(.*\)|\$[A-Za-z_][A-Za-z0-9_]*|\$[0-9@*]|\{\{.*?\}\}|\{%.*?%\}|`[^`]+`|^<[A-Za-z][^<>]*>$|^%\(\w+\)s$"
    r"|^\{[A-Za-z_]\w*\}$|^\?\?\?$|^\.\.\.$|^__[A-Z][A-Z0-9_]*__$|^@[A-Z][A-Z0-9_]*@$|^%[A-Z][A-Z0-9_]*%$"
)


def is_blank(value: Any) -> bool:
    """Whether a scalar, or a part of it, is only known when the job starts."""
    return isinstance(value, str) and _BLANK.search(value) is not None


def is_whole_blank(value: Any) -> bool:
    """Whether nothing of the scalar is known: `${BATCH}`, but not `${HOME}/model`."""
    if not isinstance(value, str):
        return False
    match = _BLANK.match(value.strip())
    return match is not None and match.end() == len(value.strip())
