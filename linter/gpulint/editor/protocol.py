"""Findings, fixes, help and offers in the words of the Language Server Protocol."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from lsprotocol import types

from ..report.printable import printable
from .actions import title
from .positions import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..finding import Finding, Location
    from ..source.edit.replacement import Edit
    from .actions import Action
    from .hover import Hover
    from .offer import Completion, Item
    from .workspace import Trouble

SOURCE = "gpulint"

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_TAGS = {
    "deprecated-key": [types.DiagnosticTag.Deprecated],
    "unused-suppression": [types.DiagnosticTag.Unnecessary],
}
_KINDS = {
    "key": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.Value,
    "word": types.CompletionItemKind.Keyword,
}


class Translator:
    """Turns what the other modules say into the protocol's types.

    `lines` gives the lines of a file by absolute path, `uri` its address.
    """

    def __init__(self, lines: Callable[[str], Lines], uri: Callable[[str], str]) -> None:
        self.lines = lines
        self.uri = uri

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """A finding: what it says, the lines below it, and its suggestions."""
        help_ = [f"help: {title(item)}" for item in finding.suggestions]
        return types.Diagnostic(
            range=self.located(finding.location),
            message="\n".join(map(printable, (finding.message, *finding.notes, *help_))),
            severity=_SEVERITIES[finding.severity],
            code=f"{finding.rule} {finding.name}",
            source=SOURCE,
            tags=_TAGS.get(_problems().get(finding.rule, "")),
            related_information=[
                types.DiagnosticRelatedInformation(
                    location=types.Location(self.uri(os.path.abspath(place.path)), self.located(place)),
                    message=printable(place.label) or "see also",
                )
                for place in finding.related
            ],
        )

    def trouble(self, trouble: Trouble) -> types.Diagnostic:
        """What keeps a file from being checked, where it stands, else on the first line."""
        lines = self.lines(trouble.path)
        line = min(max(trouble.line - 1, 0), len(lines.starts) - 1)
        start = min(lines.starts[line] + max(trouble.column - 1, 0), lines.starts[line] + len(lines.line(line)))
        end = lines.starts[line] + len(lines.line(line))
        return types.Diagnostic(
            range=self.range(trouble.path, start, end),
            message=printable(f"not checked: {trouble.reason}"),
            severity=types.DiagnosticSeverity.Error,
            source=SOURCE,
        )

    def located(self, location: Location) -> types.Range:
        """The range of a location."""
        path = os.path.abspath(location.path)
        return self.range(path, *self.lines(path).of_span(location.span))

    def range(self, path: str, start: int, end: int) -> types.Range:
        """A piece of a file."""
        lines = self.lines(path)
        return types.Range(types.Position(*lines.position(start)), types.Position(*lines.position(end)))

    def hover(self, path: str, hover: Hover) -> types.Hover:
        """Help at the pointer."""
        text = types.MarkupContent(types.MarkupKind.Markdown, hover.text)
        return types.Hover(text, self.range(path, hover.start, hover.end))

    def completion(self, path: str, completion: Completion) -> types.CompletionList:
        """What may be written."""
        items = [self._item(path, number, item) for number, item in enumerate(completion.items)]
        return types.CompletionList(is_incomplete=not completion.whole, items=items)

    def action(self, action: Action, versions: dict[str, int | None]) -> types.CodeAction:
        """A fix or a silence; `versions` are those of the open texts."""
        finding = action.finding
        return types.CodeAction(
            title=action.title,
            kind=action.kind,
            diagnostics=[self.diagnostic(finding)] if finding is not None else None,
            is_preferred=action.preferred or None,
            edit=self.edit(action.edits, versions, action.create),
        )

    def edit(self, edits: Sequence[Edit], versions: dict[str, int | None], create: str = "") -> types.WorkspaceEdit:
        """Edits of one or several files; an empty file is made first where one is to be created."""
        by_path: dict[str, list[types.TextEdit]] = {}
        for edit in edits:
            by_path.setdefault(edit.path, []).append(
                types.TextEdit(self.range(edit.path, edit.start, edit.end), edit.text)
            )
        changes: list[types.TextDocumentEdit | types.CreateFile] = []
        if create:
            changes.append(
                types.CreateFile(uri=self.uri(create), options=types.CreateFileOptions(ignore_if_exists=True))
            )
        for path, texts in by_path.items():
            document = types.OptionalVersionedTextDocumentIdentifier(self.uri(path), versions.get(path))
            changes.append(types.TextDocumentEdit(document, texts))
        return types.WorkspaceEdit(document_changes=changes)

    def _item(self, path: str, number: int, item: Item) -> types.CompletionItem:
        return types.CompletionItem(
            label=item.label,
            kind=_KINDS[item.kind],
            detail=item.detail or None,
            documentation=types.MarkupContent(types.MarkupKind.Markdown, item.help) if item.help else None,
            tags=[types.CompletionItemTag.Deprecated] if item.old else None,
            sort_text=f"{number:05}",
            text_edit=types.TextEdit(self.range(path, item.start, item.end), item.text),
        )


@cache
def _problems() -> dict[str, str]:
    """By id of a rule, the kind of problem that it reports."""
    from ..rules.load import bundled

    return {rule.id: rule.each for rule in bundled()[0]}
