"""Configs as text, read and checked as `gpulint check` does."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import recognise
from gpulint.hardware.catalogue import find
from gpulint.rules.engine import run
from gpulint.rules.facts.facts import Facts
from gpulint.rules.load import load_rules
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 2048
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
attn_implementation: flash_attention_2
gradient_checkpointing: true
optimizer: adamw_torch_fused
learning_rate: 1.0e-5
num_epochs: 1
"""


class Checked(NamedTuple):
    """A config with its findings; `text` is what was checked."""

    text: str
    findings: list

    def ids(self):
        return [finding.rule for finding in self.findings]


def facts_of_text(text, gpu=None, gpus=None, *, name="config.yaml"):
    """The facts of one config."""
    from gpulint.rules.facts.facts import Facts

    document = parse(text, name, "json" if name.endswith(".json") else "yaml")
    card = find(gpu) if gpu else None
    project = Project(".", card, gpus, None, lambda *_: None)
    return Facts(recognise(document).read(document, project), project, card)


def check_text(text, gpu=None, gpus=None, *, name="config.yaml", files=None, selection=None):
    """The findings of one config; `files` are what it may name."""
    files = files or {}
    document = parse(text, name, "json" if name.endswith(".json") else "yaml")

    def open_reference(reference, from_path):
        path = os.path.normpath(reference)
        if path not in files:
            return None
        return parse(files[path], path, "json" if path.endswith(".json") else "yaml")

    card = find(gpu) if gpu else None
    project = Project(".", card, gpus, None, open_reference)
    form = recognise(document)
    if form is None:
        raise LookupError("a config of no known format")
    return Checked(text, run(form.read(document, project), project, card, selection or load_rules()))


def edited(text, suggestion):
    """The text after a suggestion's edits."""
    return apply(text, suggestion.edits)


@pytest.fixture
def axolotl():
    """A clean full fine-tune of an 8 B model, as text."""
    return AXOLOTL


@pytest.fixture
def facts_of():
    """`facts_of_text`."""
    return facts_of_text


@pytest.fixture
def check():
    """`check_text`."""
    return check_text


@pytest.fixture(name="edited")
def edited_fixture():
    """`edited`."""
    return edited


@pytest.fixture
def own_rule(tmp_path):
    """A selection of one rule: a mapping of the keys of its file that differ from a plain one."""
    import json

    from gpulint.rules.load import bundled, read_rule_file, select

    def make(**keys):
        plain = {
            "id": "TEAM001", "name": "of-our-own", "since": "1.0", "status": "stable", "severity": "warning",
            "confidence": "high", "when": True, "at": [], "message": "found", "why": "policy", "examples": [],
        }  # fmt: skip
        path = tmp_path / f"{keys.get('id', 'rule')}.yaml"
        path.write_text(json.dumps({**plain, **keys}))
        return select((read_rule_file(str(path)).rule,), bundled()[1])

    return make


@pytest.fixture
def facts(axolotl):
    """The facts of a config, `extra` lines added."""

    def make(extra="", gpu=None, gpus=None, files=None, text=axolotl, name="c.yaml"):
        files = files or {}
        document = parse(text + extra, name, "json" if name.endswith("json") else "yaml")

        def open_reference(reference, from_path):
            return parse(files[reference], reference, "json") if reference in files else None

        card = find(gpu) if gpu else None
        project = Project(".", card, gpus, None, open_reference)
        return Facts(recognise(document).read(document, project), project, card)

    return make
