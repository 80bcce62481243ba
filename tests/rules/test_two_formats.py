"""Every rule fires and is silent in two formats: two config formats, two launchers, or a config and a command."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from gpulint.formats.core.registry import recognise
from gpulint.launchers.registry import recognise as recognise_launcher
from gpulint.rules.examples import config_text
from gpulint.rules.index import rule_files
from gpulint.source.document import SourceError
from gpulint.source.read import parse, syntax_of

REVIEWED = json.loads(Path(__file__).with_name("one_format.json").read_text(encoding="utf-8"))["rules"]
REASONS = {"file", "scheduler"}
FILES = {file.id: file for file in rule_files()}


def kind_of(example):
    name = example.get("file", "config.yaml")
    syntax = syntax_of(name) or "yaml"
    try:
        document = parse(config_text(example), name, syntax)
    except SourceError:
        return syntax
    found = recognise(document) or recognise_launcher(document)
    return found.name


@cache
def kinds(rule, *, firing):
    examples = FILES[rule].source["examples"]
    chosen = [item for item in examples if any(text.split(" at ")[0] == rule for text in item["expect"]) == firing]
    return frozenset(kind_of(item) for item in chosen)


@pytest.mark.parametrize("rule", sorted(set(FILES) - set(REVIEWED)))
def test_a_rule_fires_and_is_silent_in_two_formats(rule):
    assert len(kinds(rule, firing=True)) >= 2
    assert len(kinds(rule, firing=False)) >= 2


@pytest.mark.parametrize("rule", sorted(REVIEWED))
def test_a_rule_of_one_format_is_reviewed(rule):
    assert REVIEWED[rule] in REASONS
    assert kinds(rule, firing=True), "an example that fires"
    assert min(len(kinds(rule, firing=True)), len(kinds(rule, firing=False))) < 2, (
        "two formats now: take it off the list"
    )
