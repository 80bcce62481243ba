"""A real client speaks to `gpulint lsp` over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest

from .texts import AXOLOTL, DEEPSPEED, SCRIPT

pytest.importorskip("pygls")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

PATIENCE = 60
"""Seconds to wait for an answer on a busy machine."""

CAPABLE = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        workspace_edit=types.WorkspaceEditClientCapabilities(resource_operations=["create"])
    ),
    text_document=types.TextDocumentClientCapabilities(
        code_lens=types.CodeLensClientCapabilities(),
        code_action=types.CodeActionClientCapabilities(
            resolve_support=types.ClientCodeActionResolveOptions(properties=["edit"])
        ),
    ),
)


class Editor:
    """An editor with one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.client = LanguageClient("editor", "1")
        self.published = asyncio.Queue()
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self.published.put_nowait(params))
        self.client.feature(types.WINDOW_LOG_MESSAGE)(lambda params: None)

    def id(self, name):
        return types.TextDocumentIdentifier((self.folder / name).as_uri())

    def open(self, name, text, language="yaml"):
        item = types.TextDocumentItem(self.id(name).uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, name, text, version):
        whole = types.TextDocumentContentChangeWholeDocument(text)
        document = types.VersionedTextDocumentIdentifier(version, self.id(name).uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    async def diagnostics(self, name, version=1):
        """What is published about a version of a file."""
        while True:
            params = await asyncio.wait_for(self.published.get(), PATIENCE)
            if params.uri == self.id(name).uri and params.version == version:
                return params.diagnostics

    async def ask(self, request, params):
        return await asyncio.wait_for(getattr(self.client, f"{request}_async")(params), PATIENCE)

    async def hover(self, name, line, character):
        return await self.ask("text_document_hover", types.HoverParams(self.id(name), types.Position(line, character)))

    async def complete(self, name, line, character):
        params = types.CompletionParams(self.id(name), types.Position(line, character))
        return {item.label: item for item in (await self.ask("text_document_completion", params)).items}

    async def actions(self, name, line, only=None):
        place = types.Range(types.Position(line, 0), types.Position(line, 99))
        params = types.CodeActionParams(self.id(name), place, types.CodeActionContext([], only))
        return await self.ask("text_document_code_action", params)

    async def lenses(self, name):
        found = await self.ask("text_document_code_lens", types.CodeLensParams(self.id(name)))
        return [lens.command.title for lens in found]


@asynccontextmanager
async def editing(folder, capabilities=CAPABLE):
    editor = Editor(folder)
    await editor.client.start_io(sys.executable, "-m", "gpulint", "lsp", "--stdio")
    uri = folder.as_uri()
    params = types.InitializeParams(
        capabilities=capabilities, root_uri=uri, workspace_folders=[types.WorkspaceFolder(uri, "it")]
    )
    await editor.ask("initialize", params)
    editor.client.initialized(types.InitializedParams())
    try:
        yield editor
    finally:
        await editor.ask("shutdown", None)
        editor.client.exit(None)
        await editor.client.stop()


def session(story, folder, capabilities=CAPABLE):
    async def run():
        async with editing(folder, capabilities) as editor:
            await story(editor)

    asyncio.run(run())


def line_of(text, word):
    return text[: text.index(word)].count("\n")


def test_an_axolotl_config(tmp_path):
    typo = AXOLOTL.replace("gradient_checkpointing:", "gradient_checkpointng:")

    async def story(editor):
        editor.open("a.yaml", AXOLOTL)
        before = {item.code for item in await editor.diagnostics("a.yaml")}
        editor.change("a.yaml", typo, 2)
        (found,) = [item for item in await editor.diagnostics("a.yaml", 2) if item.code not in before]
        line = line_of(typo, "gradient_checkpointng")
        assert found.range == types.Range(types.Position(line, 0), types.Position(line, 21))
        assert (found.source, found.code) == ("gpulint", "GPU001 unknown-key-ignored")
        assert found.severity == types.DiagnosticSeverity.Warning
        assert "`gradient_checkpointing`" in found.message

        fixes = [item for item in await editor.actions("a.yaml", line) if item.title.startswith("rename")]
        (change,) = fixes[0].edit.document_changes
        assert change.text_document.version == 2
        assert [(edit.range.start.line, edit.new_text) for edit in change.edits] == [(line, "gradient_checkpointing")]

        hover = await editor.hover("a.yaml", line_of(typo, "micro_batch_size"), 3)
        assert "Samples per GPU per forward pass." in hover.contents.value

        (lens,) = await editor.lenses("a.yaml")
        assert lens.endswith(" GiB of 79.1 GiB on H100 80GB: fits")

        written = typo + "lora_a"
        editor.change("a.yaml", written, 3)
        items = await editor.complete("a.yaml", written.count("\n"), 6)
        assert items["lora_alpha"].text_edit.new_text == "lora_alpha: "

    session(story, tmp_path)


def test_a_deepspeed_config(tmp_path):
    text = DEEPSPEED.replace('"overlap_comm"', '"overlap_com"')

    async def story(editor):
        editor.open("ds.json", text, "json")
        (found,) = await editor.diagnostics("ds.json")
        line = line_of(text, "overlap_com")
        assert found.range == types.Range(types.Position(line, 4), types.Position(line, 17))
        titles = [item.title for item in await editor.actions("ds.json", line)]
        assert titles[-1] == f"Ignore {found.code.split()[1]} in this file, in gpulint.toml"
        hover = await editor.hover("ds.json", line_of(text, "stage"), 6)
        assert "**`zero_optimization.stage`**" in hover.contents.value
        assert await editor.lenses("ds.json") == []
        assert "3" in await editor.complete("ds.json", line_of(text, "stage"), 13)

    session(story, tmp_path)


def test_a_script(tmp_path):
    text = SCRIPT.replace("gpu=h100-80gb", "gpu=t4").replace("--gpu-memory", "--gpu-memry")

    async def story(editor):
        editor.open("run.sh", text, "shellscript")
        found = await editor.diagnostics("run.sh")
        assert {item.range.start.line for item in found} & {2, 4}
        hover = await editor.hover("run.sh", 3, 8)
        assert "**`max-model-len`**" in hover.contents.value
        (lens,) = await editor.lenses("run.sh")
        assert " on T4: " in lens
        written = text.rstrip("\n") + " --max-num"
        editor.change("run.sh", written, 2)
        items = await editor.complete("run.sh", 4, len(written.split("\n")[4]))
        assert "--max-num-seqs" in items

    session(story, tmp_path)


@pytest.mark.parametrize(("encoding", "more"), [("utf-16", 2), ("utf-8", 6), ("utf-32", 0)])
def test_columns_count_the_units_that_were_agreed_on(tmp_path, encoding, more):
    text = DEEPSPEED.replace('"stage": 2', '"😀": "😀", "stagee": 2')

    async def story(editor):
        editor.open("ds.json", text, "json")
        line = line_of(text, "stagee")
        before = text.split("\n")[line].index('"stagee"')
        starts = {item.range.start.character for item in await editor.diagnostics("ds.json")}
        assert before + more in starts

    general = types.GeneralClientCapabilities(position_encodings=[encoding])
    session(story, tmp_path, types.ClientCapabilities(general=general))


def test_every_safe_fix_is_worked_out_when_it_is_chosen(tmp_path):
    text = AXOLOTL.replace("lora_r: 16", "lora_r: 16 # gpulint: ignore[unknown-key-ignored]")
    (tmp_path / "a.yaml").write_text(text)

    async def story(editor):
        editor.open("a.yaml", text)
        (unused,) = [item for item in await editor.diagnostics("a.yaml") if item.code == "GPU012 unused-suppression"]
        assert unused.tags == (types.DiagnosticTag.Unnecessary,)
        (action,) = await editor.actions("a.yaml", 0, ["source.fixAll"])
        assert action.edit is None
        resolved = await editor.ask("code_action_resolve", action)
        (change,) = resolved.edit.document_changes
        assert [edit.new_text for edit in change.edits] == ["lora_r: 16\n"]

    session(story, tmp_path)


def test_an_editor_without_lenses_gets_an_inlay_on_the_first_line(tmp_path):
    async def story(editor):
        editor.open("a.yaml", AXOLOTL)
        whole = types.Range(types.Position(0, 0), types.Position(20, 0))
        (hint,) = await editor.ask("text_document_inlay_hint", types.InlayHintParams(editor.id("a.yaml"), whole))
        assert hint.label.endswith("on H100 80GB: fits")
        assert hint.position == types.Position(0, len("base_model: NousResearch/Meta-Llama-3-8B"))

    session(story, tmp_path, types.ClientCapabilities())


def test_bad_files_and_bad_requests_leave_the_session_alive(tmp_path):
    async def story(editor):
        editor.open("deep.yaml", "[" * 100_000)
        editor.open("bad.json", '{"zero_optimization": ', "json")
        editor.open("nul.sh", "#!/bin/sh\n\0vllm serve '", "shellscript")
        assert await editor.hover("never-opened.yaml", 3, 3) is None
        assert await editor.hover("deep.yaml", 900, 900) is None
        assert await editor.actions("bad.json", 77) == ()
        editor.open("a.yaml", AXOLOTL)
        assert await editor.diagnostics("a.yaml") is not None
        assert len(await editor.lenses("a.yaml")) == 1

    session(story, tmp_path)


def test_settings_that_change_on_disk_count_after_a_save(tmp_path):
    async def story(editor):
        editor.open("a.yaml", AXOLOTL.replace("lora_r:", "lora_rank:"))
        assert "GPU001 unknown-key-ignored" in {item.code for item in await editor.diagnostics("a.yaml")}
        (tmp_path / "gpulint.toml").write_text('ignore = ["unknown-key-ignored"]\n')
        editor.client.text_document_did_save(types.DidSaveTextDocumentParams(editor.id("a.yaml")))
        assert "GPU001 unknown-key-ignored" not in {item.code for item in await editor.diagnostics("a.yaml")}

    session(story, tmp_path)
