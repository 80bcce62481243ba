"""What came of one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..finding import FileResult, Finding
    from ..rules.suppress import Seen, Use


class Outcome(NamedTuple):
    """What came of one file; `started` are the other files whose jobs it starts, `parts` those that its jobs name.

    `seen` are the files whose comments were read, `used` the suppressions that silenced something.
    """

    file: FileResult
    findings: list[Finding]
    texts: dict[str, str]
    suppressed: int = 0
    started: frozenset[str] = frozenset()
    seen: tuple[Seen, ...] = ()
    used: frozenset[Use] = frozenset()
    parts: frozenset[str] = frozenset()
