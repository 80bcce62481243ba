"""Patterns that choose what is trained."""

from __future__ import annotations

import pytest

from gpulint.estimator.trainable import trainable_layers
from gpulint.job import Adapter, Job
from gpulint.models.model import Tensor

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
    assert trainable_layers(GATE, GATE.layers, Job(trainable=patterns)) == layers


def test_a_tensor_outside_the_stack_has_no_layers():
    assert trainable_layers(HEAD, None, Job(trainable=["^lm_head.weight$"])) == ()
    assert trainable_layers(HEAD, None, Job(trainable=["embed"])) is None


def test_without_patterns_all_is_trained_but_under_an_adapter():
    assert trainable_layers(GATE, GATE.layers, Job(method="freeze")) == GATE.layers
    assert trainable_layers(GATE, GATE.layers, Job(method="lora", adapter=Adapter())) is None


@pytest.mark.parametrize("pattern", ["(m+)+x", "m*o*d*e*l*l*l*l*l*l*x", "a" * 100_000, "(a|b" * 5000])
def test_a_costly_pattern_is_taken_literally(pattern):
    assert trainable_layers(GATE, GATE.layers, Job(trainable=[pattern])) is None
