"""How a trainer comes by log-probabilities, by its release."""

from __future__ import annotations

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find
from gpulint.source.read import parse

DPO = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: a/b
beta: 0.1
precompute_ref_log_probs: false
learning_rate: 2e-6
"""
FACTORY = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: {stage}
do_train: true
dataset: alpaca
template: llama3
output_dir: saves/x
"""


def job(name, text, **versions):
    project = Project("/nowhere", None, None, None, lambda *_: None, versions=versions)
    return find(name).read(parse(text, "config.yaml", "yaml"), project).job


@pytest.mark.parametrize(("trl", "how"), [("0.14.0", "whole"), ("0.15.2", "rows"), ("1.9.0", "rows")])
def test_trl_goes_row_by_row_since_0_15(trl, how):
    found = job("hf_trainer", DPO, trl=trl)
    assert (found.objective, found.loss.kernel, found.loss.log_softmax) == ("dpo", "torch", how)


ORPO = """\
trl_type: orpo
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: a/b
beta: 0.1
cpo_alpha: 1.0
learning_rate: 2e-6
"""


@pytest.mark.parametrize(("trl", "how"), [("1.13.0", "rows"), ("1.14.0", "kernel"), ("1.16.0", "kernel")])
def test_whole_logits_are_read_by_a_kernel_since_1_14(trl, how):
    found = job("hf_trainer", ORPO, trl=trl)
    assert (found.objective, found.loss.kernel, found.loss.log_softmax) == ("cpo", "torch", how)


@pytest.mark.parametrize(("trl", "apart"), [("0.28.0", False), ("0.29.0", True), ("1.9.0", True)])
def test_trl_loads_the_reference_as_a_model_of_its_own_since_0_29(trl, apart):
    assert job("hf_trainer", DPO, trl=trl).rl.reference_apart is apart


def test_axolotl_has_trls_trainer_and_ms_swift_its_own():
    text = "base_model: meta-llama/Llama-3.1-8B\ndatasets: []\nrl: dpo\nmicro_batch_size: 1\n"
    assert job("axolotl", text).rl.reference_apart
    text = "model: Qwen/Qwen2.5-0.5B\nrlhf_type: dpo\ntrain_type: lora\ndataset: a\n"
    assert not job("ms_swift", text).rl.reference_apart


@pytest.mark.parametrize(
    ("stage", "how", "idle"),
    [("dpo", "float32", False), ("kto", "float32", False), ("rm", "rows", True), ("sft", "rows", False)],
)
def test_llama_factory_takes_all_logits_in_float32(stage, how, idle):
    found = job("llamafactory", FACTORY.format(stage=stage))
    assert (found.loss.log_softmax, found.loss.logits_unused) == (how, idle)
