"""What ZeRO-3 holds gathered: reuse distance, prefetch, live parameters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.peak_candidate import PeakCandidate
from gpulint.estimator.sharding.zero3 import Window, window
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Job, Parallelism, Weights, Zero

TEN = Window((100,) * 10, 50, 50, 30, 0, 10**9, 0, 2, 2.0)
"""Ten layers of 100 elements between an embedding and a head of 50."""


def loss():
    return PeakCandidate("loss", 0, 0, 0, None)


def at(phase, layer, gradients=0):
    return PeakCandidate(phase, 0, 0, gradients, layer)


def test_without_reuse_only_the_head_and_the_module_in_use_are_gathered():
    assert TEN.size(loss()) == 2 * 50
    assert TEN.size(at("forward", 9)) == 2 * 30


def test_layers_near_the_turn_stay_gathered_within_the_reuse_distance():
    """Forward and backward both pass what comes after a layer: 2 x (50 + 100 k) < 700 holds for the last three."""
    near = TEN._replace(reuse=700)
    assert near.first_kept() == 7
    assert near.size(loss()) == 2 * (50 + 300)
    assert near.size(at("forward", 8)) == 2 * (100 + 30)
    assert near.size(at("backward", 8)) == 2 * (100 + 30)


def test_recomputation_passes_them_three_times_and_gathers_the_whole_layer():
    near = TEN._replace(reuse=700, passes=3)
    assert near.first_kept() == 8
    assert near.size(at("backward", 2)) == 2 * 100


def test_a_prefetched_bucket_counts_twice_and_max_live_parameters_cuts_it():
    ahead = TEN._replace(prefetch=40)
    assert ahead.size(at("forward", 0)) == 2 * (30 + 80)
    assert ahead._replace(live=50).size(at("forward", 0)) == 2 * (30 + 40)
    assert ahead._replace(live=10).size(at("forward", 0)) == 2 * 30


def test_a_small_model_is_gathered_whole_with_default_sizes(tiny):
    zero = Zero(3, param_persistence_threshold=0)
    job = Job(weights=Weights("bfloat16"), parallelism=Parallelism(zero=zero))
    whole = window(job, tiny, zero, parameters(job, tiny), 2.0)
    assert whole.size(loss()) == 2 * (tiny.parameters - 1000 * 64) + 2 * 2 * 1000 * 64


def test_persistent_tensors_are_not_counted_twice(tiny):
    zero = Zero(3, param_persistence_threshold=10**9)
    job = Job(weights=Weights("bfloat16"), parallelism=Parallelism(zero=zero))
    assert window(job, tiny, zero, parameters(job, tiny), 2.0).size(loss()) == 0


@given(
    reuse=st.integers(0, 3000),
    prefetch=st.integers(0, 500),
    live=st.integers(0, 2000),
    layer=st.integers(0, 9),
    phase=st.sampled_from(["forward", "backward", "loss"]),
)
def test_what_is_gathered_is_bounded_by_the_model(reuse, prefetch, live, layer, phase):
    some = TEN._replace(reuse=reuse, prefetch=prefetch, live=live)
    size = some.size(at(phase, None if phase == "loss" else layer))
    assert 0 <= size <= 2 * 1100 + 2 * 2 * prefetch
    assert some._replace(reuse=reuse + 100).size(loss()) >= TEN._replace(reuse=reuse).size(loss())


def test_fused_experts_are_fetched_as_one_module(decoder):
    """Both tensors are parameters of the same module: 4 x (2 x 160 x 64 + 64 x 160) elements."""
    model = decoder(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=160, vocabulary=100, experts=4)
    plan = Job(weights=Weights("bfloat16"), parallelism=Parallelism(zero=Zero(3, param_persistence_threshold=0)))
    found = window(plan, model, plan.parallelism.zero, parameters(plan, model), 2.0)
    assert found.largest == 4 * 3 * 64 * 160
