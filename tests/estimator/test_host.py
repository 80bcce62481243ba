"""Main memory of a machine by phase."""

from __future__ import annotations

import pytest

from gpulint.estimator.sharding import host
from gpulint.estimator.sharding.host import saving
from gpulint.estimator.states.parameters import parameters
from gpulint.estimator.terms import total
from gpulint.job.job import Adapter, Fsdp, Hardware, Job, Offload, Parallelism, Quantization, Weights, Zero


def job(gpus=16, nodes=2, **parallelism):
    return Job(
        model="test",
        weights=Weights("bfloat16"),
        hardware=Hardware(gpus=gpus, nodes=nodes),
        parallelism=Parallelism(**parallelism),
    )


def memory(plan, model, train=0, save=0):
    return host.memory(plan, model, parameters(plan, model), train, save)[0]


@pytest.mark.parametrize(
    ("parallelism", "copies"),
    [
        ({}, 8),
        ({"zero": Zero(2)}, 8),
        ({"zero": Zero(3)}, 0),
        ({"fsdp": Fsdp()}, 8),
        ({"fsdp": Fsdp(cpu_ram_efficient_loading=True)}, 1),
    ],
)
def test_copies_of_the_model_that_loading_makes_on_a_node(llama_8b, parallelism, copies):
    assert memory(job(**parallelism), llama_8b).load == copies * 2 * llama_8b.parameters


def test_the_copies_have_the_dtype_they_are_loaded_in(llama_8b):
    """accelerate upcasts the shards after they were loaded."""
    assert memory(job(fsdp=Fsdp(upcast_trainable=True)), llama_8b).load == 8 * 2 * llama_8b.parameters


def test_weights_packed_on_loading_pass_through_one_at_a_time(llama_8b):
    plan = job()
    plan.method, plan.adapter = "lora", Adapter(targets=["q_proj"])
    plan.weights.quantization = Quantization("bnb-nf4", 4)
    assert memory(plan, llama_8b).load == 8 * 2 * 128256 * 4096


PACKED = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def test_a_checkpoint_that_is_packed_already_is_read_packed(llama_8b):
    """Its own config says so where the job does not: then tensor by tensor, else as it lies."""
    packed = llama_8b._replace(config={**llama_8b.config, "quantization_config": PACKED})
    plan = job()
    assert memory(plan, packed).load == 8 * sum(item.raw for item in parameters(plan, packed))
    plan.method, plan.adapter = "lora", Adapter(targets=["q_proj"])
    assert memory(plan, packed).load == 8 * 2 * 128256 * 4096


def test_pinned_bytes_may_be_rounded_up_to_twice_their_size(llama_8b):
    zero = Zero(2, offload_optimizer=Offload("cpu", pin_memory=True))
    found = memory(job(zero=zero), llama_8b, train=1000 * 2**30)
    assert (found.pinned, found.high) == (1000 * 2**30, 2000 * 2**30)
    loose = memory(job(zero=Zero(2, offload_optimizer=Offload("cpu"))), llama_8b, train=1000 * 2**30)
    assert (loose.pinned, loose.high) == (0, 1000 * 2**30)


def test_a_whole_checkpoint_is_put_together_on_one_rank(llama_8b):
    """FSDP 1 gathers the root and a layer at a time; version 2 the largest tensor; ZeRO-3 the largest module."""
    root, layer = 2 * 128256 * 4096 + 4096, 218_103_808 + 2 * 4096
    plans = {
        2 * (root + layer): job(fsdp=Fsdp(wrap="transformer", state_dict_type="FULL_STATE_DICT")),
        2 * 128256 * 4096: job(fsdp=Fsdp(version=2, wrap="transformer", state_dict_type="FULL_STATE_DICT")),
    }
    for size, plan in plans.items():
        written = saving(plan, llama_8b, parameters(plan, llama_8b))
        assert (total(written.device), written.host) == (size, 2 * llama_8b.parameters)
    gathered = job(zero=Zero(3, gather_16bit_weights_on_save=True))
    assert total(saving(gathered, llama_8b, parameters(gathered, llama_8b)).device) == 2 * 128256 * 4096


@pytest.mark.parametrize("plan", [job(), job(zero=Zero(3)), job(fsdp=Fsdp(state_dict_type="SHARDED_STATE_DICT"))])
def test_shards_are_written_where_they_are(llama_8b, plan):
    assert saving(plan, llama_8b, parameters(plan, llama_8b)) == ((), ())
