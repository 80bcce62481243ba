"""How FSDP 1 makes its units: what is on the GPU at once, and what stays."""

from __future__ import annotations

import pytest

from gpulint.estimator.allocator import runtime
from gpulint.estimator.allocator.allocator import Allocator
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.sharding.wrapping import BUCKET, Wrapped, _buckets, stay, wrap, wrapping
from gpulint.estimator.states.parameters import parameters
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB, MIB

MODEL = "meta-llama/Llama-2-7b-hf"


def job(quantization=None, fields=None, **fsdp) -> Job:
    plan = {"version": 1, "wrap": "transformer", "use_orig_params": False, "cpu_ram_efficient_loading": True, **fsdp}
    return Job.validate(
        {
            "model": MODEL,
            "method": "lora",
            "weights": {"dtype": "bfloat16", "quantization": quantization},
            "adapter": {"r": 8, "targets": ["q_proj", "v_proj"]},
            "optimizer": {"name": "adamw_torch"},
            "activation_checkpointing": "full",
            "micro_batch_size": 1,
            "sequence_length": 512,
            "padded": True,
            "parallelism": {"fsdp": plan},
            "hardware": {"gpus": 2},
            **(fields or {}),
        }
    )


ALL_BUT_OUTPUT = ["k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"]
NF4 = {"method": "bnb-nf4", "bits": 4, "storage_dtype": "bfloat16"}


def made(plan: Job) -> list[Wrapped]:
    model = resolve(MODEL)
    return wrapping(plan, parameters(plan, model), sharded_state(plan, model).units)


def test_layers_come_first_and_the_root_last():
    units = made(job())
    assert len(units) == 33
    assert units[-1].flat == 2 * (2 * 32000 * 4096 + 4096)
    assert all(unit.kept == unit.flat // 2 for unit in units)


def test_broadcasts_are_closed_by_the_tensor_that_fills_them():
    assert _buckets([BUCKET - 1, 2, 3]) == [BUCKET + 1, 3]
    assert _buckets([BUCKET, BUCKET]) == [BUCKET, BUCKET]
    assert _buckets([]) == []


def test_nothing_is_broadcast_where_each_rank_initialises_its_own():
    units = made(job(fields={"framework": "torchtitan", "versions": {}}))
    assert all(unit.buckets == () for unit in units)


def test_shards_stay_and_what_they_were_made_from_does_not():
    units = made(job())
    memory = Allocator()
    wrap(memory, units)
    assert memory.allocated == pytest.approx(stay(units), abs=33 * MIB)
    root = units[-1]
    assert memory.reserved > stay(units) + root.flat + sum(root.buckets)


def test_version_2_and_plain_runs_make_no_flat_parameters():
    assert made(job(version=2)) == []
    plain = job()
    plain.parallelism.fsdp = None
    assert wrapping(plain, parameters(plain, resolve(MODEL)), None) == []


def test_trained_shards_are_made_float32_where_all_are():
    full = {"method": "full", "adapter": None, "precision": {"autocast": "bfloat16"}}
    units = made(job(fields=full, upcast_trainable=True))
    assert all(unit.wider == 2 * unit.kept for unit in units)
    memory = Allocator()
    wrap(memory, units)
    assert memory.allocated == pytest.approx(2 * sum(unit.kept for unit in units), rel=0.01)


@pytest.mark.parametrize("quantization", [None, NF4])
def test_a_short_run_reserves_what_its_weights_came_through(quantization):
    """fsdp_qlora's benchmark: 512 and 2,048 tokens of LoRA reserve the same 10.2 GiB; 8.3 and 9.2 are used."""
    model = resolve(MODEL)
    plan = job(quantization)
    found = estimate_job(plan, model, None).per_gpu
    assert found.reserved - found.allocated > GIB / 2


def test_offload_leaves_the_scales_of_packed_weights_on_every_gpu():
    """They are attributes of the weight, not parameters: 4 B for 64 elements without double quantisation."""
    model = resolve(MODEL)
    packed = [item for item in parameters(job(NF4), model) if item.packed]
    scales = sum(4 * item.elements // 64 for item in packed)
    kept = sharded_state(job(NF4, offload=True), model).weights
    assert scales <= kept < 1.01 * scales
    assert sharded_state(job(offload=True), model).weights == 0


def test_a_checkpoint_inside_a_unit_leaves_no_inputs_behind():
    model = resolve(MODEL)
    fields = {"reentrant": True, "sequence_length": 4096}
    around, inside = job(fields=fields), job(fields=fields, checkpoints_inside=True)
    assert sharded_state(around, model).kept
    assert not sharded_state(inside, model).kept
    assert estimate_job(inside, model, None).per_gpu.allocated < estimate_job(around, model, None).per_gpu.allocated


def test_logits_that_a_loop_names_to_the_end_of_its_step_live_through_backward():
    model = resolve(MODEL)
    plain = {"versions": {"transformers": "4.38.2"}, "sequence_length": 2048}
    dropped, held = (job(fields={**plain, "loss": {"kept": kept}}) for kept in (False, "step"))
    more = estimate_job(held, model, None).per_gpu.allocated - estimate_job(dropped, model, None).per_gpu.allocated
    assert more == pytest.approx(4 * 2048 * 32000, rel=0.02)


def test_a_run_that_fits_with_the_least_overhead_is_not_said_to_pass_the_card():
    """fsdp_qlora on two RTX 4090: 12 rows of 2,048 tokens with offload reserve 22.4 of the 23.5 GiB that a card has."""
    model, card = resolve(MODEL), find("rtx-4090")
    fields = {
        "micro_batch_size": 12,
        "sequence_length": 2048,
        "reentrant": True,
        "loss": {"kept": "step"},
        "adapter": {"r": 64, "dropout": 0.1, "targets": ALL_BUT_OUTPUT, "dtype": "bfloat16"},
        "versions": {"transformers": "4.38.2", "torch": "2.2.0", "bitsandbytes": "0.42.0"},
    }
    plan = job(NF4, fields=fields, offload=True, checkpoints_inside=True)
    found = estimate_job(plan, model, card)
    most = runtime.process_overhead(card, plan)
    assert estimate_job(plan, model, None).per_gpu.reserved + most.low > card.usable
    assert found.per_gpu.reserved + most.total > card.usable >= found.per_gpu.reserved + most.low
    assert found.per_gpu.process == card.usable
