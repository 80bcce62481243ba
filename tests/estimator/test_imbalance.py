"""Expert parallelism widens the upper bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.states.imbalance import dropless, unbalanced
from gpulint.job.job import Hardware, Job, Parallelism, Weights


def job(expert, checkpointing="full"):
    return Job(
        model="test",
        weights=Weights("bfloat16"),
        micro_batch_size=2,
        sequence_length=128,
        activation_checkpointing=checkpointing,
        hardware=Hardware(gpus=4),
        parallelism=Parallelism(expert=expert),
    )


@pytest.fixture(scope="module")
def sparse(decoder):
    return decoder(hidden=64, layers=3, heads=4, kv_heads=2, intermediate=160, vocabulary=1000, experts=4)


def test_a_second_share_of_tokens(sparse):
    """2 B x 256 tokens x 2 experts x (2 x 64 + 3 x 160), once, or for each of 3 layers without checkpointing."""
    assert unbalanced(job(1), sparse) == 0
    assert unbalanced(job(2), sparse) == 2 * 256 * 2 * (2 * 64 + 3 * 160)
    assert unbalanced(job(2, "none"), sparse) == 3 * unbalanced(job(2), sparse)


def test_only_the_upper_bound_moves(sparse, monkeypatch):
    wide = estimate_job(job(4, "none"), sparse, None).per_gpu
    monkeypatch.setattr("gpulint.estimator.training.unbalanced", lambda job, model: 0)
    even = estimate_job(job(4, "none"), sparse, None).per_gpu
    assert wide.high - even.high == unbalanced(job(4, "none"), sparse)
    assert (wide.low, wide.process, wide.allocated) == (even.low, even.process, even.allocated)


def test_prime_rl_weights_rows_in_float32_as_torchtitan_does(sparse):
    own = sparse._replace(model_type="qwen3_moe")
    titan, prime = replace(job(2), framework="torchtitan"), replace(job(2), framework="prime-rl")
    assert unbalanced(prime, own) == unbalanced(titan, own) == 2 * 256 * 2 * (4 * 64 + 4 * 160)
    assert unbalanced(prime, own._replace(model_type="mixtral")) == unbalanced(job(2), own)


def megatron(expert, **changes):
    return replace(job(expert), framework="megatron", **changes)


def test_megatron_sorts_rows_by_expert_in_a_copy(sparse):
    assert unbalanced(megatron(2), sparse) - unbalanced(job(2), sparse) == 2 * 256 * 2 * 64


def test_megatron_drops_no_token(sparse):
    """All tokens on one of 4 ranks, whose 1 expert takes half of their 2 choices: 2 shares. Of 2 ranks: 2 shares."""
    wider = sparse._replace(shape=sparse.shape._replace(experts=16))
    assert dropless(megatron(4), sparse) == dropless(megatron(2), sparse) == dropless(job(4), wider) == []
    (bound,) = dropless(megatron(8), wider)
    assert (bound.low, bound.high) == (0, 6 * unbalanced(megatron(8), wider))


def test_what_routing_may_do_beyond_a_second_share_moves_no_verdict(sparse, monkeypatch):
    wider = sparse._replace(shape=sparse.shape._replace(experts=16))
    bounded = estimate_job(megatron(8), wider, None)
    (bound,) = [item for item in bounded.assumptions if item.field == "parallelism.expert" and item.high]
    monkeypatch.setattr("gpulint.estimator.unknowns.dropless", lambda job, model: [])
    other = estimate_job(megatron(8), wider, None)
    assert bounded.per_gpu.high - other.per_gpu.high == bound.high
    assert bounded.verdict == other.verdict


def test_torchtitan_makes_its_experts_again_under_both_kinds_of_checkpointing(decoder):
    model = decoder(layers=4, experts=8)

    def more(mode: str) -> int:
        job = Job(
            framework="torchtitan",
            micro_batch_size=1,
            sequence_length=512,
            activation_checkpointing=mode,
            parallelism=Parallelism(expert=4),
        )
        return unbalanced(job, model)

    assert more("selective") == more("full") == more("none") // 4
