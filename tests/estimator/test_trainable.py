"""Patterns that choose what is trained."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.parameters import parameters, trainable_layers
from gpulint.job.job import Adapter, Job, Quantization, Weights
from gpulint.models.model import Tensor
from gpulint.models.resolve import resolve

MODEL = resolve({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 12,
                 "num_attention_heads": 4, "vocab_size": 100})  # fmt: skip
GATE = Tensor("model.layers.{0}.mlp.gate.weight", (8, 64), tuple(range(12)), "model.layers.", "router", False)
HEAD = Tensor("lm_head.weight", (100, 64), None, "", "head", True)


@pytest.mark.parametrize(
    ("patterns", "layers"),
    [
        (["layers.1[01].mlp"], (10, 11)),
        ([r"layers\.3\."], (3,)),
        (["layers.4.mlp.gate", "layers.5.mlp.gate"], (4, 5)),
        (["layers.2.mlp.gate.weight$[:4]"], (2,)),
        (["self_attn"], None),
        (["layers.(1|2).*"], (1, 2, 10, 11)),
        (["mlp.(unbalanced"], None),
        ([], None),
    ],
)
def test_layers_that_match(patterns, layers):
    assert trainable_layers(GATE, GATE.layers, Job(trainable=patterns), MODEL) == layers


def test_a_tensor_outside_the_stack_has_no_layers():
    assert trainable_layers(HEAD, None, Job(trainable=["^lm_head.weight$"]), MODEL) == ()
    assert trainable_layers(HEAD, None, Job(trainable=["embed"]), MODEL) is None


def test_without_patterns_all_is_trained_but_under_an_adapter():
    assert trainable_layers(GATE, GATE.layers, Job(method="freeze"), MODEL) == GATE.layers
    assert trainable_layers(GATE, GATE.layers, Job(method="lora", adapter=Adapter()), MODEL) is None


@pytest.mark.parametrize("pattern", ["(m+)+x", "m*o*d*e*l*l*l*l*l*l*x", "a" * 100_000, "(a|b" * 5000])
def test_a_costly_pattern_is_taken_literally(pattern):
    assert trainable_layers(GATE, GATE.layers, Job(trainable=[pattern]), MODEL) is None


def test_an_adapter_of_a_type_that_is_not_modelled_is_not_estimated(llama_8b):
    job = Job(weights=Weights("bfloat16"), method="lora", adapter=Adapter(type="xlora", r=16, targets=["q_proj"]))
    with pytest.raises(NotEstimable, match="xlora"):
        parameters(job, llama_8b)
    job.adapter.type = "rslora"
    assert sum(item.elements for item in parameters(job, llama_8b) if item.part == "adapter") == 32 * 16 * 2 * 4096


def test_embeddings_and_head_may_be_taken_back_after_the_preparation(llama_8b):
    job = Job(weights=Weights("bfloat16", quantization=Quantization("bnb-nf4", 4)), method="lora")
    job.adapter = Adapter(targets=["q_proj"], prepare_kbit=True, prepared_head="bfloat16")
    dtypes = {item.role: item.dtype for item in parameters(job, llama_8b) if item.part == "base"}
    assert (dtypes["embedding"], dtypes["head"], dtypes["norm"]) == ("bfloat16", "bfloat16", "float32")
