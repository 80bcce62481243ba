"""Reading small configs without files: a project whose other files are given as texts."""

from __future__ import annotations

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find, is_of
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse


class Bench:
    """Reads a text with one format; `files` are the other files of its project, `root` where it stands."""

    def __init__(self, format_name: str, suffix: str, root: str) -> None:
        self.format = find(format_name)
        self.suffix = suffix
        self.root = root

    def read(self, text, *, gpus=None, gpu=None, nodes=None, files=None, versions=None):
        def open_file(reference, _from_path):
            content = (files or {}).get(reference)
            return parse(content, reference, reference.rpartition(".")[2]) if content is not None else None

        project = Project(self.root, gpu, gpus, nodes, open_file, versions=versions or {})
        return self.format.read(parse(text, f"config.{self.suffix}", self.suffix), project)

    def job(self, text, **given):
        return self.read(text, **given).job

    def problems(self, text, kind, **given):
        return [problem for problem in self.read(text, **given).problems if problem.kind == kind]

    def change(self, text, changes, **given):
        """The text after the edits that make a change, and the job that it is then; None when it cannot be said."""
        reading = self.read(text, **given)
        edits = self.format.edits(reading, changes)
        assert (edits is None) == (self.format.describe(reading, changes) is None)
        if edits is None:
            return None
        after = apply(text, edits)
        return after, self.read(after, **given).job


@pytest.fixture
def bench(tmp_path):
    return lambda format_name, suffix="yaml": Bench(format_name, suffix, str(tmp_path))


def read_as(name, text, gpus=None, suffix="yaml"):
    """The reading of a text that must be of a format, on `gpus` GPUs, alone in its project."""
    document = parse(text, f"config.{suffix}", suffix)
    form = find(name)
    assert is_of(document, name)
    return form.read(document, Project("/nowhere", None, gpus, None, lambda *_: None))


@pytest.fixture
def opened(tmp_path):
    """The one job that a file of that name and text starts."""

    def run(name: str, text: str):
        path = tmp_path / name
        path.write_text(text)
        (found,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened
        return found

    return run
