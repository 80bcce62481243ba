"""Reserved memory of a training process against a replay of the allocator."""

from __future__ import annotations

import pytest

from gpulint.estimator.allocator.allocator import Policy
from gpulint.estimator.allocator.fragmentation import Held
from gpulint.estimator.allocator.replay import Plan, reserved, uncut
from gpulint.estimator.allocator.trace import Trace
from gpulint.estimator.estimate_job import estimate_job
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import MIB

NOTHING = Plan([], 0, [], [], [], [], True)


def test_a_step_reserves_what_is_alive_at_once():
    """30 and 50 MiB together, then 70 MiB, which neither of the two freed segments holds."""
    found = Trace([0, 1, ~0, ~1, 2, ~2], [30 * MIB, 50 * MIB, 70 * MIB], frozenset(), 0)
    assert reserved(found, NOTHING, Policy()).most == 150 * MIB


def test_states_take_the_blocks_that_the_first_step_freed():
    """The step's 64 MiB hold the state after it; the second step opens them anew."""
    found = Trace([0, ~0], [64 * MIB], frozenset(), 0)
    assert reserved(found, NOTHING._replace(states=[(64 * MIB, 1)]), Policy()).most == 128 * MIB
    assert reserved(found, NOTHING._replace(states=[(32 * MIB, 1)]), Policy()).most == 64 * MIB + 64 * MIB


def test_gradients_stay_until_the_step():
    found = Trace([0, 1, ~1, ~0], [40 * MIB, 40 * MIB], frozenset({1}), 0)
    plan = NOTHING._replace(temporary=[(40 * MIB, 2)])
    assert reserved(found, plan, Policy()).most == 120 * MIB
    assert reserved(found, plan._replace(keeps=False), Policy()).most == 80 * MIB


def test_gradients_that_add_up_stay_where_the_first_micro_step_made_them():
    """30 MiB of activations and a gradient of 50; the next micro step asks for both again beside that gradient."""
    first = Trace([0, 1, ~0, ~1], [30 * MIB, 50 * MIB], frozenset({1}), 0)
    later = Trace([0, 1, ~0, ~1], [30 * MIB, 50 * MIB], frozenset(), 0, opening=first)
    plan = NOTHING._replace(gradients=[(50 * MIB, 1)], keeps=False)
    assert reserved(later, plan, Policy()).most == (30 + 50 + 50) * MIB


def test_what_a_loop_names_is_there_from_the_second_step_on():
    """70 MiB of logits that the loop names until the next ones are there, beside 20 MiB of activations."""
    found = Trace([0, 1, 2, ~0, ~1, ~2], [70 * MIB, 20 * MIB, 70 * MIB], frozenset(), 0, before=(0,), after=(2,))
    plan = NOTHING._replace(temporary=[(2 * MIB, 1)])
    run = reserved(found, plan, Policy())
    assert run.first == (20 + 70) * MIB
    assert run.most == (20 + 70 + 70) * MIB


def test_what_loading_freed_is_used_again():
    found = Trace([0, ~0], [40 * MIB], frozenset(), 0)
    assert reserved(found, NOTHING._replace(load=[(60 * MIB, 1)]), Policy()).most == 60 * MIB
    assert reserved(found, NOTHING._replace(load=[(20 * MIB, 3)]), Policy()).most == 100 * MIB


def test_the_largest_tensors_may_find_their_blocks_cut_up():
    """70 and 30 MiB are larger than the states' pieces and alive at once; no more of them is lost than states take."""
    found = Trace([0, 1, 2, ~2, ~1, ~0], [70 * MIB, 30 * MIB, 10 * MIB], frozenset(), 0)
    assert uncut(found, NOTHING._replace(states=[(20 * MIB, 9)])) == 100 * MIB
    assert uncut(found, NOTHING._replace(states=[(40 * MIB, 9)])) == 70 * MIB
    assert uncut(found, NOTHING._replace(states=[(20 * MIB, 2)])) == 40 * MIB
    assert uncut(found, NOTHING) == 0
    run = reserved(found, NOTHING._replace(states=[(64 * MIB, 1)]), Policy())
    assert run.first == 110 * MIB <= run.most


def test_a_small_card_makes_torch_give_free_segments_back():
    found = Trace([0, ~0, 1, ~1], [60 * MIB, 80 * MIB], frozenset(), 0)
    held = Held(140 * MIB, 80 * MIB, 150 * MIB, 220 * MIB, 10 * MIB, found, NOTHING)
    assert held.within(200 * MIB) == 140 * MIB
    assert held.within(100 * MIB) == 80 * MIB
    assert held.within(79 * MIB) is None


@pytest.mark.parametrize("batch", [1, 4])
def test_a_run_that_fits_reserves_no_more_than_the_card(batch):
    job = Job.validate(
        {"model": "gpt2-xl", "weights": {"dtype": "bfloat16"}, "micro_batch_size": batch, "sequence_length": 1024}
    )
    gpu = find("rtx-4090")
    estimate = estimate_job(job, resolve("gpt2-xl"), gpu)
    free = estimate_job(job, resolve("gpt2-xl"), None)
    assert estimate.per_gpu.reserved <= free.per_gpu.reserved
    assert estimate.per_gpu.low <= estimate.per_gpu.process <= estimate.per_gpu.high
    assert estimate.per_gpu.reserved >= estimate.per_gpu.allocated


def test_a_run_beyond_every_card_is_bounded_instead_of_replayed():
    """19 TB of activations are more than the replayed allocator has addresses for."""
    job = Job.validate(
        {
            "kind": "training",
            "model": "Qwen/Qwen2.5-0.5B-Instruct",
            "method": "full",
            "precision": {"autocast": "bfloat16"},
            "micro_batch_size": 2935,
            "sequence_length": 2048,
        }
    )
    found = estimate_job(job, resolve("Qwen/Qwen2.5-0.5B-Instruct"), None).per_gpu
    assert found.allocated > 16 << 40
    assert found.allocated <= found.reserved < found.high
