"""A workspace, and files in it."""

from __future__ import annotations

import pytest

from gpulint.editor.workspace import Workspace


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """An empty workspace whose project is an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Workspace()


@pytest.fixture
def opened(workspace, tmp_path):
    """Opens a text under a name, on disk, too, and returns its path."""

    def open_(name: str, text: str, *, disk: bool = True) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if disk:
            path.write_bytes(text.encode())
        workspace.put(str(path), text, 1)
        return str(path)

    return open_
