"""torchtitan's experts against arithmetic done by hand: R rows of h columns, f inside."""

from __future__ import annotations

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.forward.network import Network, network
from gpulint.estimator.layers.state import ReplayState
from gpulint.estimator.layers.token_choice import grouped
from gpulint.estimator.tape.tape import Tape
from gpulint.job.job import Job, Loss, Parallelism, Weights

T, H, F, K = 1024, 256, 512, 2
R = T * K


@pytest.fixture
def mixture(decoder):
    return decoder(layers=2, hidden=H, intermediate=F, experts=4)


def of(mixture, **fields) -> Network:
    usual = {"framework": "torchtitan", "micro_batch_size": 1, "sequence_length": T, "weights": Weights("bfloat16")}
    return network(Job(**{**usual, **fields}), mixture)


def held(whole: Network) -> int:
    """Bytes that a forward pass through the experts leaves, but for numbers of a row and its result."""
    tape, modules = Tape().configured(whole.options), whole.weights.layer(0, ReplayState())
    x, weights = tape.new(T * H, 2), tape.new(R, 4)
    tape.source(x)
    tape.source(weights)
    before = tape.live
    y = grouped(x, weights, tape.new(R, 8), modules, whole.dims)
    return tape.live - before - y.n * y.e


def test_a_float32_copy_of_the_output_is_kept_to_weight_it(mixture):
    """The padded rows, both products, silu and the product of both; the float32 output."""
    expected = 2 * R * H + 4 * 2 * R * F + 4 * R * H
    assert 0 <= held(of(mixture)) - expected < 64 * R


def test_a_whole_graph_weights_in_one_kernel(mixture):
    """Beside the padded rows both products, their product and the narrow output are kept."""
    whole = of(mixture, compile=True, versions={"torchtitan": "0.2.0"})
    assert 0 <= held(whole) - (2 * R * H + 3 * 2 * R * F + 2 * R * H) < 64 * R


def test_whose_experts_they_are(mixture):
    assert of(mixture).dims.experts.token_choice
    assert not of(mixture, framework=None).dims.experts.token_choice
    owned = mixture._replace(model_type="qwen3_moe")
    assert of(owned, framework="prime-rl").dims.experts.token_choice


def test_selective_checkpointing_keeps_this_rank_s_part_of_sums(decoder):
    """Under sequence parallelism attention and MLP end in a sum over ranks, T h / t of 16 bits each."""
    t, layers = 2, 4
    model = decoder(layers=layers, hidden=H, intermediate=F)

    def held_by(**fields) -> int:
        job = Job(
            framework="torchtitan",
            micro_batch_size=1,
            sequence_length=8 * T,
            weights=Weights("bfloat16"),
            attention="sdpa",
            parallelism=Parallelism(tensor=t, sequence=True),
            loss=Loss(),
            **fields,
        )
        return max(item.activations for item in instants(job, model) if item.phase == "loss")

    policy = {"activation_checkpointing": "selective", "checkpoint_policy": "every_second_matmul"}
    less = held_by(**policy) - held_by(activation_checkpointing="full")
    assert less >= layers * 2 * (2 * 8 * T * H // t)
