"""A comment above each finding that silences it: `--add-ignore`, and what editors offer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..settings.directives import read_directives
from ..source.document import SourceError
from ..source.edit.write import replace_file
from ..source.read import parse, read

if TYPE_CHECKING:
    from ..finding import Finding, Report
    from ..source.document import Document


class Added(NamedTuple):
    """What `add_ignores` did: comments written, files changed, and files with why they were left as they are."""

    comments: int
    files: int
    refused: list[tuple[str, str]]


def add_ignores(report: Report, reason: str) -> Added:
    """Write `# gpulint: ignore[rule] reason` above each finding's line, one comment a line.

    A file is left alone where a comment would not be read as one: JSON has none, and a block of text in YAML is not
    YAML. What the settings can say instead is then in `refused`.
    """
    by_path: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_path.setdefault(finding.location.path, []).append(finding)
    comments = files = 0
    refused: list[tuple[str, str]] = []
    for path, findings in by_path.items():
        document = read(path)
        changed = _commented(document.text, findings, reason)
        added = _added(document, changed)
        if added:
            replace_file(path, changed)
            comments += added
            files += 1
        else:
            names = ", ".join(f'"{name}"' for name in dict.fromkeys(finding.name for finding in findings))
            entry = f'[[suppressions]] with file = "{path}" and rules = [{names}]'
            refused.append((path, f"cannot have a comment there; add to gpulint.toml: {entry}"))
    return Added(comments, files, refused)


def commented(document: Document, findings: list[Finding], reason: str) -> str | None:
    """The text of a file with a comment above each finding's line; None where one would not be read as a comment."""
    changed = _commented(document.text, findings, reason)
    return changed if _added(document, changed) else None


def _added(document: Document, changed: str) -> int:
    """How many suppressions the text has more than the document; 0 where anything else differs, too."""
    try:
        after = parse(changed, document.path, document.syntax)
        more = len(read_directives(after).ignores) - len(read_directives(document).ignores)
    except SourceError:
        return 0
    same = [root.plain() for root in after.roots] == [root.plain() for root in document.roots]
    return more if same else 0


def _commented(text: str, findings: list[Finding], reason: str) -> str:
    lines = text.splitlines(keepends=True)
    names: dict[int, list[str]] = {}
    for finding in findings:
        names.setdefault(_statement(lines, finding.location.span.line), []).append(finding.name)
    for line in sorted(names, reverse=True):
        written = lines[line - 1]
        indent = re.match(r"[ \t]*", written)[0]  # type: ignore[index]
        end = "\r\n" if written.endswith("\r\n") else "\n"
        words = ", ".join(dict.fromkeys(names[line]))
        lines.insert(line - 1, f"{indent}# gpulint: ignore[{words}] {' '.join(reason.split())}".rstrip() + end)
    return "".join(lines)


def _statement(lines: list[str], line: int) -> int:
    """The first line of the command that a line continues: no comment may stand between them."""
    while line > 1 and lines[line - 2].rstrip().endswith("\\"):
        line -= 1
    return line
