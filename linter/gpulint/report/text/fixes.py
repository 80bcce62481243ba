"""What fixing did, for people: the differences as unified diffs, and one line of totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masking import without_secrets
from ..printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...finding import Finding
    from ...run.fixing import Change, Fixes


def diff(changes: Mapping[str, Change]) -> str:
    """The changes as one patch; secrets and control characters in it are masked, so it may not apply where they are."""
    return "".join(_file_diff(path, *change) for path, change in changes.items())


def _file_diff(path: str, before: str, after: str) -> str:
    from difflib import unified_diff

    shown = printable(path)
    lines = [*unified_diff(_lines(before), _lines(after), shown, shown)]
    return "".join(_line(line, above[1:].rstrip("\r\n")) for above, line in zip(["", *lines], lines, strict=False))


def _lines(text: str) -> list[str]:
    """The lines with their breaks, as `patch` counts them."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _line(line: str, above: str) -> str:
    body, end = line, "\n\\ No newline at end of file\n"
    if line.endswith("\n"):
        body, end = line[:-1], "\n"
    if body.endswith("\r"):
        body, end = body[:-1], "\r" + end
    mark, body = body[:1], body[1:]
    return mark + "\t".join(printable(part) for part in without_secrets(body, above).split("\t")) + end


def totals(fixes: Fixes, *, unsafe: bool, written: bool = True) -> str:
    """`3 fixed, 2 need --unsafe-fixes, 1 has no fix`."""
    held = len(fixes.held)
    needing = 0 if unsafe else fixable(fixes.report.findings)[1]
    without = len(fixes.report.findings) - held - needing
    parts = [f"{fixes.fixed} {'fixed' if written else 'would be fixed'}"]
    if needing:
        parts.append(f"{needing} need{'s' if needing == 1 else ''} --unsafe-fixes")
    if held:
        parts.append(f"{held} not applied")
    if without:
        parts.append(f"{without} {'has' if without == 1 else 'have'} no fix")
    return ", ".join(parts)


def offer(findings: Iterable[Finding]) -> str:
    """What `--fix` could do about findings, "" for nothing."""
    safe, unsafe = fixable(findings)
    if safe and unsafe:
        return f"{safe} fixable with --fix, {unsafe} more with --fix --unsafe-fixes"
    if safe or unsafe:
        return f"{safe or unsafe} fixable with --fix" + (" --unsafe-fixes" if unsafe else "")
    return ""


def fixable(findings: Iterable[Finding]) -> tuple[int, int]:
    """How many findings have a safe fix, and how many only an unsafe one."""
    kinds = [{item.applicability for item in finding.suggestions if item.edits} for finding in findings]
    return sum("safe" in kind for kind in kinds), sum("unsafe" in kind and "safe" not in kind for kind in kinds)
