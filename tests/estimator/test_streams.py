"""FSDP in the replay: its units beside the computation's blocks, and what its other streams hold."""

from __future__ import annotations

import pytest

from gpulint.estimator import budget
from gpulint.estimator.allocator.allocator import Allocator, segments
from gpulint.estimator.allocator.replay import _micro_step, plan_of
from gpulint.estimator.allocator.trace import trace
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.sharding.fsdp_units import Unit, Units
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.sharding.streams import IN_FLIGHT, Gathering, Sharding
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import MIB

MODEL = "meta-llama/Llama-3.2-1B"


def job(torch="2.6", **fsdp) -> Job:
    plan = {"version": 2, "wrap": "transformer", **fsdp}
    plan["mixed_precision"] = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    return Job.validate(
        {
            "model": MODEL,
            "objective": "pretrain",
            "weights": {"dtype": "float32"},
            "optimizer": {"name": "adamw_torch"},
            "activation_checkpointing": "full",
            "micro_batch_size": 2,
            "sequence_length": 2048,
            "packing": True,
            "parallelism": {"fsdp": plan},
            "hardware": {"gpus": 8},
            "versions": {"torch": torch},
        }
    )


def planned(plan: Job):
    model = resolve(MODEL)
    found = sharded_state(plan, model)
    return plan_of(plan, model, found, estimate_job(plan, model, None).phases)


def reserved(plan: Job) -> int:
    return estimate_job(plan, resolve(MODEL), None).per_gpu.reserved


@pytest.mark.parametrize(
    "fsdp",
    [
        {},
        {"keeps_last_layer_gathered": True},
        {"version": 1},
        {"sharding": "shard_grad_op"},
        {"version": 1, "sharding": "shard_grad_op"},
    ],
)
def test_a_micro_step_gives_everything_back(fsdp):
    plan = job(**fsdp)
    how, found = planned(plan), trace(plan, resolve(MODEL))
    assert how.sharding is not None
    assert len(found.passes) == 2 * 16
    memory = Allocator()
    for _ in range(2):
        assert _micro_step(memory, found, how) == ([], ())
        assert memory.allocated == 0


@pytest.mark.parametrize("fsdp", [{"wrap": "none"}, {"reshard_after_forward": 2}, {"offload": True}])
def test_runs_that_are_not_followed_unit_by_unit(fsdp):
    assert planned(job(**fsdp)).sharding is None


def test_passes_lie_one_after_the_other():
    found = trace(job(), resolve(MODEL))
    edges = [edge for item in found.passes for edge in (item.begin, item.end)]
    assert edges == sorted(edges)
    assert [item.backward for item in found.passes] == [False] * 16 + [True] * 16
    assert edges[-1] <= len(found.events)


def test_the_reductions_input_has_blocks_of_its_own_before_torch_2_5():
    """pytorch/pytorch#129721 brought it among the computation's, where what is freed after the spike serves others."""
    early, late = planned(job("2.4")), planned(job("2.5"))
    block = late.sharding.plan.block
    assert early.sharding.other - late.sharding.other >= block.reduced
    assert reserved(job("2.4")) > reserved(job("2.5"))


def test_version_1_holds_what_other_streams_have_not_finished_with():
    """`record_stream`: version 2 was written to do without it (torchtitan pull request 165: 1.1 to 4.5 GiB less)."""
    assert reserved(job(version=1)) > reserved(job())


def test_a_unit_that_is_not_prefetched_takes_no_block_of_the_gathers_stream():
    ahead, in_turn = (planned(job(version=1, backward_prefetch=policy)).sharding for policy in (None, "NO_PREFETCH"))
    assert ahead.other - in_turn.other == segments(ahead.plan.block.gathered)


def test_what_nccl_recorded_before_torch_2_8_waits_for_the_reduction():
    """Copies of whole gradients in float32 of the two units that the host is ahead; version 2 never dropped them."""
    old, new = planned(job("2.7", version=1)).sharding, planned(job("2.8", version=1)).sharding
    assert old.other - new.other == IN_FLIGHT * segments(new.plan.block.reduced)
    assert planned(job("2.7")).sharding.other == planned(job("2.8")).sharding.other


def test_a_strategy_that_keeps_layers_gathered_reserves_them_all():
    more = reserved(job(sharding="shard_grad_op")) - reserved(job())
    layers = planned(job()).sharding.plan
    assert more > 0.8 * (layers.blocks - 2) * layers.block.gathered


UNIT = Unit(elements=4 * MIB, gathered=8 * MIB, graded=4 * MIB, gradients=8 * MIB, reduced=16 * MIB)


def gathering(version: int) -> Gathering:
    units = Units(Unit(), Unit(), Unit(), UNIT, 4, Unit())
    copies = version == 2
    return Gathering(Allocator(), Sharding(units, version, [], [8 * MIB] if copies else [], False, copies, 0))


def test_a_last_layer_that_stays_serves_its_backward():
    """Four layers forward, of which only the last is left; its backward takes no block of its own."""
    units = gathering(2)
    units.how = units.how._replace(last=True)
    left = []
    for _ in range(4):
        units.before(backward=False)
        units.after()
        left.append(units.memory.allocated)
    assert left == [0, 0, 0, 8 * MIB]
    units.before(backward=True)
    assert units.memory.allocated == 8 * MIB
    units.after()
    units.close()
    assert units.memory.allocated == 0


def layer(units: Gathering) -> None:
    units.before(backward=True)
    units.handed(units.memory.take(8 * MIB))
    units.after()


def test_flat_gradients_of_version_1_wait_for_the_reduction():
    units = gathering(1)
    for done in range(1, 5):
        layer(units)
        assert units.memory.allocated == min(done, IN_FLIGHT) * 8 * MIB
    units.close()
    assert units.memory.allocated == 0


def test_one_input_of_the_reduce_scatter_lives_under_version_2():
    units = gathering(2)
    for _ in range(3):
        layer(units)
        assert units.memory.allocated == 16 * MIB
    units.close()
    assert units.memory.allocated == 0


@pytest.mark.parametrize("fsdp", [{}, {"version": 1}])
def test_a_pass_counts_what_it_asks_for_once_however_many_units_it_goes_through(fsdp):
    plan = job(**fsdp)
    how, found = planned(plan), trace(plan, resolve(MODEL))
    before = budget.spent()
    _micro_step(Allocator(), found, how)
    gathered = 2 * (len(how.sharding.root) + len(found.passes) * (len(how.sharding.layer) + 1) + 1)
    assert len(found.events) <= budget.spent() - before <= len(found.events) + gathered
