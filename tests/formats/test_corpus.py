"""The formats against real published configs: recognition, and every unknown or mistyped key reviewed by hand."""

import json

import pytest

from gpulint.formats.accelerate import format as accelerate
from gpulint.formats.axolotl import format as axolotl
from gpulint.formats.axolotl import parallel as axolotl_parallel
from gpulint.formats.axolotl import weights as axolotl_weights
from gpulint.formats.core.claims import TOOLS
from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import recognise, weights
from gpulint.formats.deepspeed import format as deepspeed
from gpulint.source.document import SourceError
from gpulint.source.read import read

FORMATS = {module.FORMAT.name: module.FORMAT for module in (axolotl, deepspeed, accelerate)}

DEAD = {
    # keys of older releases that upstream now drops without a word
    "axolotl": {
        "adam_eps",
        "base_model_ignore_patterns",
        "context_parapllel_size",
        "datasets.train_on_split",
        "debug",
        "eta_min",
        "full_finetune",
        "gptq_disable_exllama",
        "test_value",
        "torch_dtype",
        "fsdp_config.sharding_strategy",
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_config.fsdp_limit_all_gathers",
        "fsdp_config.fsdp_backward_prefetch",
        "fsdp_config.fsdp_forward_prefetch",
    },
    # `compile` takes DeepCompile's keys since 0.15
    "deepspeed": {"compile.disable", "compile.backend"},
    # the launcher makes arguments of them that nothing reads; the last two are accelerate's own negative tests
    "accelerate": {
        "fsdp_config.fsdp_backward_prefetch_policy",
        "deepspeed_config.bf16_enabled",
        "deepspeed_config.offload_param_pin_memory",
        "deepspeed_config.seq_parallel_communication_data_type",
        "invalid_key",
        "another_invalid_key",
    },
}

REFUSED_VALUES = {
    "axolotl": {"warmup_steps", "tokens"},
    "deepspeed": {"zero_optimization.offload_param", "zero_optimization.offload_optimizer"},
    "accelerate": set(),
}
"""`warmup_steps: 0.1` is no integer, `tokens` is a list by now, `offload_param: false` is no section."""


@pytest.fixture(scope="module")
def documents(shared):
    """(format by the index, document) of every file of the corpus that can be read."""
    folder = shared / "corpus"
    found = []
    for row in json.loads((folder / "INDEX.json").read_text()):
        try:
            document = read(str(folder / row["path"]))
        except SourceError:
            assert row["format"] not in FORMATS
            continue
        if document.roots and document.root.is_mapping:
            found.append((row["format"], document))
    return found


def is_format(document, name):
    found = recognise(document)
    return found is not None and found.name == name


def test_one_tool_has_the_best_claim_to_a_file(documents):
    for _, document in documents:
        found = weights(document)
        best = [tool for tool, weight in found.items() if weight == max(found.values())]
        assert len(best) < 2 or TOOLS.keys().isdisjoint(best), document.path


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_recognition_is_exact(documents, name):
    wrong = [document.path for kind, document in documents if is_format(document, name) != (kind == name)]
    assert wrong == []
    assert sum(kind == name for kind, _ in documents) >= 60


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_unknown_and_mistyped_key_is_a_true_one(documents, name, monkeypatch):
    monkeypatch.setattr(axolotl_parallel, "hidden_size", lambda *_: None)
    monkeypatch.setattr(axolotl_weights, "_is_prequantized", lambda *_: False)
    project = Project("/nowhere", None, None, None, lambda *_: None)
    unknown, mistyped = set(), set()
    for kind, document in documents:
        if kind == name:
            problems = FORMATS[name].read(document, project).problems
            unknown |= {item.key for item in problems if item.kind == "unknown-key"}
            mistyped |= {item.key for item in problems if item.kind == "wrong-type"}
    assert unknown == DEAD[name]
    assert mistyped == REFUSED_VALUES[name]
