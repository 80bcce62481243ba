"""Launcher files of tests: a text becomes a file of a folder of its own, which is read as a user's would be."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings


@pytest.fixture
def launched(tmp_path):
    """The Jobs of a text; `files` are others beside it."""

    def read(text: str, name: str = "config.yaml", files: dict[str, str] | None = None, gpu: str | None = None):
        for path, content in {name: text, **(files or {})}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content)
        return open_jobs(recognise_file(str(tmp_path / name)), Settings(root=str(tmp_path), gpu=gpu))

    return read


@pytest.fixture
def jobs_of(launched):
    """The jobs alone."""
    return lambda *given, **options: [opened.reading.job for opened in launched(*given, **options).opened]
