"""A letter dropped from a known key of a published config is found at its line, whatever format the config is of."""

import collections
import json

import pytest

from gpulint.formats.format import Project
from gpulint.formats.keys import load
from gpulint.formats.registry import FORMAT_NAMES, find, recognise
from gpulint.source.document import SourceError
from gpulint.source.read import parse, read

FILES = 200

LEAST_LENGTH = 8
"""Of a key that is broken: from a shorter one a dropped letter makes a word of its own too easily."""


def strict():
    """Formats whose schema says what becomes of an unknown top key."""
    names = []
    for name in FORMAT_NAMES:
        try:
            schema = load(name)
        except FileNotFoundError:
            continue
        if schema.get("x-unknown-keys") and schema.get("properties"):
            names.append(name)
    return names


def planted(document, name):
    """The text with one known top key of the file without its fourth last letter, that word, and its line.

    The format must still know the file, so the key is not one of those that give it away.
    """
    schema = load(name)["properties"]
    present = set(document.root.keys())
    for entry in document.root.entries()[document.root.merged :]:
        key = entry.key.value
        if not isinstance(key, str) or len(key) < LEAST_LENGTH or key not in schema or "x-removed" in schema[key]:
            continue
        typo = key[:-4] + key[-3:]
        start = document.text.find(key, entry.key.span.start)
        if typo in schema or typo in present or not 0 <= start - entry.key.span.start <= 1:
            continue
        text = document.text[:start] + typo + document.text[start + len(key) :]
        try:
            changed = parse(text, document.path, document.syntax)
        except SourceError:
            continue
        found = recognise(changed)
        if found is not None and found.name == name:
            yield changed, typo, entry.key.span.line


def _has_known_keys(document, name):
    """Whether the format's keys stand at the top of the file, and not in a section of it."""
    return not set(load(name)["properties"]).isdisjoint(document.root.keys())


@pytest.fixture(scope="module")
def sample(shared):
    """Documents of strict formats, as evenly over the formats as the corpus allows."""
    wanted = strict()
    by_format = collections.defaultdict(list)
    for row in json.loads((shared / "corpus" / "INDEX.json").read_text()):
        by_format[row["format"]].append(shared / "corpus" / row["path"])
    documents = collections.defaultdict(list)
    for paths in by_format.values():
        for path in paths[:: max(1, len(paths) // 60)]:
            try:
                document = read(str(path))
            except (SourceError, OSError):
                continue
            found = recognise(document)
            if found is not None and found.name in wanted and _has_known_keys(document, found.name):
                documents[found.name].append(document)
    each = -(-FILES // max(1, len(documents)))
    return {name: listed[: 2 * each] for name, listed in documents.items()}


def test_planted_typos_are_found(sample):
    missed, tried = [], collections.Counter()
    for name, documents in sample.items():
        for document in documents:
            case = next(planted(document, name), None)
            if case is None:
                continue
            changed, typo, line = case
            project = Project("", None, None, None, lambda *_: None)
            try:
                problems = find(name).read(changed, project).problems
            except SourceError:  # no job at all, and the reason is said
                continue
            tried[name] += 1
            found = [item for item in problems if item.kind == "unknown-key" and item.key == typo]
            if not any(item.span.line == line for item in found):
                missed.append(f"{name} {document.path}:{line} {typo}")
    assert sum(tried.values()) >= FILES or not sample
    assert not missed, f"{len(missed)} of {sum(tried.values())} missed: {missed[:20]}"
    # of a format whose keys stand deeper than the top there may be no case
    assert len(tried) >= 0.8 * len(sample)
