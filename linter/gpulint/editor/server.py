"""The language server: what the editor sends goes to one worker that keeps the open files; answers go back.

Requests and texts reach the worker in the order in which they came, so that every answer is about the text that the
editor showed when it asked. A defect costs one answer and is told in the editor's log; the server goes on.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from .. import __version__
from ..run.check import internal_error
from ..settings.settings import SETTINGS_NAMES
from .actions import FIX, FIX_ALL, actions, fix_all, has_safe_fix
from .completion import complete
from .hover import hover
from .lens import lenses
from .positions import Lines
from .protocol import Translator
from .workspace import Workspace, syntax_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..settings.layers import Layers

Answer = TypeVar("Answer")

DELAY = 0.2
"""Seconds without a change after which a text is checked."""

SUFFIXES = {"yaml": ".yaml", "json": ".json", "jsonc": ".json", "toml": ".toml", "shellscript": ".sh"}
"""The suffix of a text that was never saved, by the editor's word for its language."""

TRIGGERS = ["=", "[", ":", " ", '"', "-", "/"]
"""Characters after which an editor asks for completion unasked."""


class Session:
    """One editor's session. `layers` reads the settings anew."""

    def __init__(self, layers: Callable[[], Layers]) -> None:
        self.server = LanguageServer(
            "gpulint", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full, max_workers=2
        )
        self.workspace = Workspace(layers)
        self.translator = Translator(self.lines, self.uri)
        self.worker = ThreadPoolExecutor(1, "gpulint")
        self.uris: dict[str, str] = {}
        self.published: set[str] = set()
        self.waiting: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._register()

    def serve(self) -> None:
        """Speak the protocol on standard input and output until the editor ends the session."""
        self.server.start_io()

    def _register(self) -> None:
        """Tell pygls who answers what; it marks the functions, which methods do not bear and partials do."""
        triggers = types.CompletionOptions(trigger_characters=TRIGGERS)
        resolved = types.CodeActionOptions([types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True)
        for name, method, options in (
            (types.INITIALIZE, self.initialize, None),
            (types.INITIALIZED, self.initialized, None),
            (types.TEXT_DOCUMENT_DID_OPEN, self.opened, None),
            (types.TEXT_DOCUMENT_DID_CHANGE, self.changed, None),
            (types.TEXT_DOCUMENT_DID_SAVE, self.saved, None),
            (types.TEXT_DOCUMENT_DID_CLOSE, self.closed, None),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self.saved, None),
            (types.TEXT_DOCUMENT_HOVER, self.hover, None),
            (types.TEXT_DOCUMENT_COMPLETION, self.complete, triggers),
            (types.TEXT_DOCUMENT_CODE_ACTION, self.act, resolved),
            (types.CODE_ACTION_RESOLVE, self.resolve, None),
            (types.TEXT_DOCUMENT_CODE_LENS, self.lens, types.CodeLensOptions(resolve_provider=False)),
            (types.TEXT_DOCUMENT_INLAY_HINT, self.inlay, None),
        ):
            self.server.feature(name, options)(partial(method))

    # Life of the session

    def initialize(self, params: types.InitializeParams) -> None:
        """Stand where the editor's first folder is: paths in settings and messages start there."""
        folders = params.workspace_folders or []
        uri = folders[0].uri if folders else params.root_uri
        path = to_fs_path(uri) if uri else None
        if path and os.path.isdir(path):
            os.chdir(path)

    def initialized(self, params: types.InitializedParams) -> None:  # noqa: ARG002
        """Ask to be told of settings that change on disk."""
        workspace = self.server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace else None
        if watched is None or not watched.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(f"**/{name}") for name in SETTINGS_NAMES]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        registration = types.Registration("gpulint-settings", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        self.server.client_register_capability(types.RegistrationParams([registration]))

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        """A file is open: check it now."""
        document = params.text_document
        path = to_fs_path(document.uri)
        if path is None:
            name = document.uri.rpartition(":")[2].replace("/", "-") or "untitled"
            path = name + SUFFIXES.get(document.language_id, "")
        path = os.path.abspath(path)
        self.uris[path] = document.uri
        self.worker.submit(self.workspace.put, path, document.text, document.version)
        self.soon(0)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        """A text was changed: check it once the keys rest."""
        document = self.server.workspace.get_text_document(params.text_document.uri)
        path = self.path(document.uri)
        self.worker.submit(self.workspace.put, path, document.source, params.text_document.version)
        self.soon(DELAY)

    def saved(self, params: Any) -> None:  # noqa: ARG002
        """Something on disk has changed, which any open file may read."""
        self.worker.submit(self.workspace.touch_all)
        self.soon(0)

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        """A file is no longer open."""
        path = self.path(params.text_document.uri)
        self.uris.pop(path, None)
        self.worker.submit(self.workspace.close, path)
        self.soon(0)

    # Diagnostics

    def soon(self, delay: float) -> None:
        """Publish what is found after a delay, in place of what was to be published earlier."""
        if self.waiting is not None:
            self.waiting.cancel()
        self.waiting = asyncio.get_running_loop().call_later(delay, self.start)

    def start(self) -> None:
        """Publish, as a task."""
        task = asyncio.get_running_loop().create_task(self.publish())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def publish(self) -> None:
        """Send what is found in every file, and nothing for files in which nothing is left."""
        nothing: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        found = await self.asked(self.found, nothing)
        for uri in self.published - found.keys():
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        for uri, (version, diagnostics) in found.items():
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))
        self.published = set(found)

    def found(self) -> dict[str, tuple[int | None, list[types.Diagnostic]]]:
        """The diagnostics by address: of every open file, and of those that open ones lead to."""
        report = self.workspace.check()
        found: dict[str, tuple[int | None, list[types.Diagnostic]]] = {
            self.uri(path): (buffer.version, []) for path, buffer in self.workspace.buffers.items()
        }
        for trouble in self.workspace.troubles:
            found[self.uri(trouble.path)][1].append(self.translator.trouble(trouble))
        for finding in report.findings:
            uri = self.uri(os.path.abspath(finding.location.path))
            found.setdefault(uri, (None, []))[1].append(self.translator.diagnostic(finding))
        return found

    # Requests

    async def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Help on the key at the pointer, or the estimate."""

        def answer() -> types.Hover | None:
            path = self.path(params.text_document.uri)
            read, text = self.workspace.reading(path), self.workspace.text(path)
            if read is None or text is None:
                return None
            help_ = hover(read, path, text, self.offset(path, params.position))
            return self.translator.hover(path, help_) if help_ is not None else None

        return await self.asked(answer, None)

    async def complete(self, params: types.CompletionParams) -> types.CompletionList | None:
        """What may be written at the cursor."""

        def answer() -> types.CompletionList | None:
            path = self.path(params.text_document.uri)
            buffer = self.workspace.buffers.get(path)
            if buffer is None:
                return None
            read = self.workspace.understood(path, params.position.line)
            offset = self.offset(path, params.position)
            offered = complete(read, path, buffer.text, offset, syntax_of(path, buffer.text))
            return self.translator.completion(path, offered)

        return await self.asked(answer, None)

    async def act(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """Fixes of the findings in a range, silence, and every safe fix of the file."""

        def answer() -> list[types.CodeAction]:
            path, only = self.path(params.text_document.uri), params.context.only
            if path not in self.workspace.buffers:
                return []
            found: list[types.CodeAction] = []
            if _wanted(FIX, only):
                place = self.offset(path, params.range.start), self.offset(path, params.range.end)
                made = [item for item in actions(self.workspace, path, *place) if not item.create or self.creates()]
                found = [self.translator.action(item, self.versions()) for item in made]
            if _wanted(FIX_ALL, only) and has_safe_fix(self.workspace, path):
                everything = types.CodeAction(
                    "Apply all safe fixes (gpulint)", FIX_ALL, data={"uri": params.text_document.uri}
                )
                if not self.resolves():
                    everything.edit = self.translator.edit(fix_all(self.workspace, path), self.versions())
                found.append(everything)
            return found

        return await self.asked(answer, [])

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """The edits of every safe fix, worked out once they are wanted."""

        def answer() -> types.CodeAction:
            if action.edit is None and isinstance(action.data, dict):
                path = self.path(str(action.data["uri"]))
                action.edit = self.translator.edit(fix_all(self.workspace, path), self.versions())
            return action

        return await self.asked(answer, action)

    async def lens(self, params: types.CodeLensParams) -> list[types.CodeLens]:
        """Memory and verdict above the first line."""
        top = types.Range(types.Position(0, 0), types.Position(0, 0))
        return [types.CodeLens(top, types.Command(text, "")) for text in await self.summaries(params.text_document.uri)]

    async def inlay(self, params: types.InlayHintParams) -> list[types.InlayHint]:
        """The same behind the first line, for editors without lenses."""
        document = self.server.client_capabilities.text_document
        if params.range.start.line > 0 or (document is not None and document.code_lens is not None):
            return []
        said = await self.summaries(params.text_document.uri)
        path = self.path(params.text_document.uri)
        buffer = self.workspace.buffers.get(path)
        if not said or buffer is None:
            return []
        lines = self.lines(path)
        end = types.Position(*lines.position(len(lines.line(0))))
        return [types.InlayHint(end, "; ".join(said), padding_left=True)]

    async def summaries(self, uri: str) -> list[str]:
        """The memory of a file's jobs in a line each."""

        def answer() -> list[str]:
            read = self.workspace.last(self.path(uri))
            return lenses(read) if read is not None else []

        return await self.asked(answer, [])

    async def asked(self, answer: Callable[[], Answer], otherwise: Answer) -> Answer:
        """What the worker answers; `otherwise` where a defect keeps it from that."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, answer)
        except Exception as error:  # one answer is lost, not the session
            said = types.LogMessageParams(types.MessageType.Error, internal_error(error))
            self.server.window_log_message(said)
            return otherwise

    # Places and what the editor can do

    def path(self, uri: str) -> str:
        """The path of an address."""
        known = next((path for path, other in self.uris.items() if other == uri), None)
        return known or os.path.abspath(to_fs_path(uri) or uri.rpartition(":")[2].replace("/", "-"))

    def uri(self, path: str) -> str:
        """The address of a path, as the editor wrote it where it did."""
        return self.uris.get(path) or str(from_fs_path(path))

    def lines(self, path: str) -> Lines:
        """The lines of a file in the code units that were agreed on."""
        agreed = self.server.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return Lines(self.workspace.text(path) or "", str(getattr(agreed, "value", agreed)))

    def offset(self, path: str, position: types.Position) -> int:
        """The offset of a position."""
        return self.lines(path).offset(position.line, position.character)

    def versions(self) -> dict[str, int | None]:
        """The versions of the open texts by path."""
        return {path: buffer.version for path, buffer in self.workspace.buffers.items()}

    def creates(self) -> bool:
        """Whether the editor makes files that an edit writes."""
        workspace = self.server.client_capabilities.workspace
        edit = workspace.workspace_edit if workspace is not None else None
        return types.ResourceOperationKind.Create in ((edit.resource_operations if edit is not None else None) or ())

    def resolves(self) -> bool:
        """Whether the editor asks for the edit of an action once it is chosen."""
        document = self.server.client_capabilities.text_document
        action = document.code_action if document is not None else None
        support = action.resolve_support if action is not None else None
        return support is not None and "edit" in support.properties


def _wanted(kind: str, only: Any) -> bool:
    """Whether an editor that asks for some kinds of actions asks for this one."""
    words = [str(getattr(word, "value", word)) for word in only or ()]
    return not words or any(kind == word or kind.startswith(f"{word}.") for word in words)
