"""What `gpulint rules test` found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...rules.testing import Tested, Tried


def render(tested: Tested) -> str:
    """One rule: a line where all holds, else what does not and the difference."""
    file = tested.file
    if file is None:
        return f"FAIL {printable(str(tested.error))}"
    title = printable(f"{file.id} {file.name}")
    if tested.holds:
        return f"ok   {title}: {_counted(len(tested.tried), 'example')}"
    lines = [f"FAIL {title}: {printable(tested.path)}"]
    lines += [f"  missing: an example that {gap}" for gap in tested.gaps]
    for number, tried in enumerate(tested.tried, 1):
        if not tried.holds:
            lines += _difference(tested.path, number, tried)
    return "\n".join(lines)


def _difference(path: str, number: int, tried: Tried) -> list[str]:
    head = f"  example {number}, {printable(path)}:{tried.line}:{tried.column}"
    if tried.outcome is None:
        return [f"{head}: {printable(tried.reason)}"]
    left = list(tried.outcome.got)
    lines = [head]
    for text in tried.outcome.expected:
        if text in left:
            left.remove(text)
        else:
            lines.append(f"    - expected {printable(text)}")
    got = zip(tried.outcome.got, tried.outcome.findings, strict=True)
    for text, finding in got:
        if text in left:
            left.remove(text)
            lines.append(
                f"    + found {printable(text)} on line {finding.location.span.line}: {printable(finding.message)}"
            )
    return [*lines, *([] if tried.outcome.findings else ["    found nothing"])]


def summary(tested: Sequence[Tested]) -> str:
    """`3 rules, 7 examples: all pass`."""
    examples = sum(len(item.tried) for item in tested)
    failed = sum(not item.holds for item in tested)
    result = "all pass" if not failed else f"{failed} {'rule fails' if failed == 1 else 'rules fail'}"
    return f"{_counted(len(tested), 'rule')}, {_counted(examples, 'example')}: {result}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
