"""What an editor offers to do about findings: their fixes, silence, and every safe fix at once."""

from __future__ import annotations

import os
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from ..report.printable import printable
from ..run.ignoring import commented
from ..source.document import SourceError
from ..source.edit.replacement import Edit
from ..source.edit.write import refusal
from ..source.overlay import instead
from ..source.read import read
from ..units import bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..finding import Finding, Suggestion
    from .workspace import Workspace

FIX, FIX_ALL = "quickfix", "source.fixAll.gpulint"
"""Kinds of actions, as the protocol names them."""

MAX_LINES = 2_000
"""Lines of a text whose changes are told apart; those of a longer one become one."""


class Action(NamedTuple):
    """Something to do: edits of texts as they are open, by absolute path, and the finding that it is about.

    `create` is a file that the edits write and that does not exist.
    """

    title: str
    kind: str
    edits: tuple[Edit, ...]
    finding: Finding | None = None
    preferred: bool = False
    create: str = ""


def actions(workspace: Workspace, path: str, start: int, end: int) -> Iterator[Action]:
    """The fixes of the findings that touch a piece of a file, the safe ones first, then how to silence each."""
    findings = [item for item in workspace.findings(path) if _touches(workspace, path, item, start, end)]
    for finding in findings:
        fixes = [item for item in finding.suggestions if item.edits and _writable(workspace, path, item)]
        fixes.sort(key=lambda item: item.applicability != "safe")
        for number, suggestion in enumerate(fixes):
            preferred = number == 0 and suggestion.applicability == "safe"
            yield Action(title(suggestion), FIX, _absolute(suggestion.edits), finding, preferred)
    for finding in findings:
        action = _silence(workspace, path, finding)
        if action is not None:
            yield action


def title(suggestion: Suggestion) -> str:
    """A suggestion in a line: what it changes, the memory after it, and what it costs the run."""
    effect = f" -> {bytes_text(suggestion.per_gpu)} per GPU" if suggestion.per_gpu is not None else ""
    cost = f" ({suggestion.cost})" if suggestion.cost else ""
    return printable(f"{suggestion.text}{effect}{cost}")


def has_safe_fix(workspace: Workspace, path: str) -> bool:
    """Whether a finding of a file has a fix that keeps what the job computes."""
    return any(
        suggestion.edits and suggestion.applicability == "safe"
        for finding in workspace.findings(path)
        for suggestion in finding.suggestions
    )


def fix_all(workspace: Workspace, path: str) -> tuple[Edit, ...]:
    """The edits of every safe fix of a file, each tried as `gpulint check --fix` tries it."""
    from ..run.fixing import fix

    with instead(workspace.texts()):
        changes = fix([path], workspace.layers()).changes
    return tuple(
        edit for name, change in changes.items() for edit in between(os.path.abspath(name), change.before, change.after)
    )


def between(path: str, before: str, after: str) -> Iterator[Edit]:
    """The edits that turn one text into another, line by line."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if max(len(old), len(new)) > MAX_LINES:
        yield Edit(path, 0, len(before), after)
        return
    places = [0]
    for line in old:
        places.append(places[-1] + len(line))
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Edit(path, places[i1], places[i2], "".join(new[j1:j2]))


def _touches(workspace: Workspace, path: str, finding: Finding, start: int, end: int) -> bool:
    from .positions import Lines

    first, last = Lines(workspace.text(path) or "").of_span(finding.location.span)
    return first <= end and start <= last


def _writable(workspace: Workspace, path: str, suggestion: Suggestion) -> bool:
    """Whether every file of the edits is open, or one that may be written."""
    root = workspace.layers().of(path).root
    names = {os.path.abspath(edit.path) for edit in suggestion.edits}
    return all(
        name in workspace.buffers or (not refusal(name, root) and workspace.text(name) is not None) for name in names
    )


def _absolute(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    return tuple(Edit(os.path.abspath(edit.path), edit.start, edit.end, edit.text) for edit in edits)


def _silence(workspace: Workspace, path: str, finding: Finding) -> Action | None:
    """A comment above the line; where the file takes none, an entry of the settings."""
    with instead(workspace.texts()):
        try:
            document = read(path)
        except SourceError:
            return None
        text = commented(document, [finding], "")
        if text is not None:
            edits = tuple(between(path, document.text, text))
            return Action(f"Ignore {finding.name} here", FIX, edits, finding)
        return _setting(workspace, path, finding)


def _setting(workspace: Workspace, path: str, finding: Finding) -> Action:
    """An entry in the settings file that counts for a file, or in a new one at the root of its project."""
    layers = workspace.layers()
    known = layers.file(path)
    file = os.path.abspath(known or os.path.join(layers.of(path).root, "gpulint.toml"))
    text = workspace.text(file) or (_content(file) if known else "")
    table = "tool.gpulint.suppressions" if os.path.basename(file) == "pyproject.toml" else "suppressions"
    relative = os.path.relpath(path, os.path.dirname(file)).replace(os.sep, "/")
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    entry = f'{gap}[[{table}]]\nfile = "{_quoted(relative)}"\nrules = ["{finding.name}"]\n'
    said = f"Ignore {finding.name} in this file, in {os.path.basename(file)}"
    return Action(said, FIX, (Edit(file, len(text), len(text), entry),), finding, create="" if known else file)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _content(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()
