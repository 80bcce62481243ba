"""Every published config reads to what the tools that run it read."""

from __future__ import annotations

import json

import pytest
import yaml
from comparison import same

from gpulint.source.document import SourceError
from gpulint.source.read import read

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def theirs(path, text):
    try:
        if path.suffix == ".json":
            return [json.loads(text)]
        if path.suffix == ".toml":
            return [pytest.importorskip("tomllib").loads(text)]
        return list(yaml.load_all(text, Loader)) or [None]
    except (ValueError, yaml.YAMLError):
        return None


def test_every_published_config_reads_to_the_same_values(shared):
    folder = shared / "corpus"
    names = [entry["path"] for entry in json.loads((folder / "INDEX.json").read_text())]
    wrong = []
    for name in names:
        path = folder / name
        try:
            document = read(str(path))
            ours = [root.plain() for root in document.roots]
        except SourceError as error:
            ours = error
        with open(path, encoding="utf-8-sig", newline="") as file:
            expected = theirs(path, file.read())
        if isinstance(ours, SourceError) != (expected is None) or (expected and not same(ours, expected)):
            wrong.append((name, str(ours)[:200]))
    assert len(names) > 2000
    assert wrong == []
