"""LLaMA-Adapter's parameters, against what LitGPT's resource tables print."""

from __future__ import annotations

import pytest

from gpulint.estimator.states.parameters import trainable_parameters
from gpulint.formats.native.litgpt_model import changed
from gpulint.job.job import Adapter, Job
from gpulint.models.llama_adapter import FIRST_VERSION, SECOND_VERSION, TYPES, added, trains
from gpulint.models.resolve import resolve


def model(name: str):
    return resolve(changed(resolve(name).config, name))


@pytest.mark.parametrize(
    ("name", "kind", "published"),
    [
        ("stabilityai/stablelm-base-alpha-3b", FIRST_VERSION, 573_888),
        ("stabilityai/stablelm-base-alpha-3b", SECOND_VERSION, 2_125_248),
        ("meta-llama/Llama-2-7b-hf", FIRST_VERSION, 1_229_760),
        ("meta-llama/Llama-2-7b-hf", SECOND_VERSION, 4_279_744),
    ],
)
def test_trainable_parameters_are_those_of_the_resource_tables(name, kind, published):
    """tutorials/resource-tables.md of Lightning-AI/litgpt at 26857050."""
    assert (
        trainable_parameters(Job(method="adapter", framework="litgpt", adapter=Adapter(kind)), model(name)) == published
    )


@pytest.mark.parametrize("kind", TYPES)
def test_the_first_two_layers_have_no_prompt(kind):
    prompts = [tensor for tensor in added(model("meta-llama/Llama-2-7b-hf"), kind) if "adapter_wte" in tensor.name]
    assert [tensor.layers for tensor in prompts] == [tuple(range(2, 32))]


def test_only_the_norms_before_attention_and_mlp_are_trained():
    """Gemma 2 has norms behind both as well, which `adapter_filter` does not name."""
    gemma = model("google/gemma-2-2b")
    names = {tensor.leaf for tensor in gemma.tensors if trains(tensor, gemma, SECOND_VERSION)}
    assert names == {"input_layernorm", "pre_feedforward_layernorm", "norm"}
    assert not any(trains(tensor, gemma, FIRST_VERSION) for tensor in gemma.tensors)
