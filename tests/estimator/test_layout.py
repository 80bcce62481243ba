"""What lies whole on a rank, how it loads, and how the arithmetic is told."""

from __future__ import annotations

import pytest

from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.states.parameter import per_node, ranks
from gpulint.estimator.states.tensor_parallel import divided
from gpulint.job.job import (
    Adapter,
    Fsdp,
    FsdpMixedPrecision,
    Hardware,
    Job,
    Optimizer,
    Parallelism,
    Precision,
    Quantization,
    Weights,
    Zero,
)


def job(gpus=1, dtype="bfloat16", **changes):
    return Job(weights=Weights(dtype), hardware=Hardware(gpus=gpus), **changes)


def qlora(gpus=1, **parallelism):
    return Job(
        weights=Weights("bfloat16", quantization=Quantization("bnb-nf4", 4, double_quant=True)),
        method="lora",
        adapter=Adapter(r=16, targets=["q_proj", "v_proj"], prepare_kbit=True),
        hardware=Hardware(gpus=gpus),
        parallelism=Parallelism(**parallelism),
    )


def test_ddp_keeps_a_second_copy_of_the_gradients(llama_8b):
    one, eight = sharded_state(job(), llama_8b), sharded_state(job(8), llama_8b)
    assert one.buffers == 0
    assert eight.buffers == eight.gradients == 2 * llama_8b.parameters
    assert (one.weights, one.optimizer) == (eight.weights, eight.optimizer)


def test_separate_masters_cost_4_bytes_and_fp32_states(llama_8b):
    plan = sharded_state(job(precision=Precision(master_weights=True), parallelism=Parallelism(tensor=2)), llama_8b)
    assert plan.optimizer == pytest.approx(12 * llama_8b.parameters / 2, rel=1e-3)


def test_packing_needs_the_16_bit_tensor_while_it_loads(llama_8b):
    """The largest linear weight in 16 bits; the head's upcast is larger: 2 B x 128,256 x 4096."""
    plan = sharded_state(qlora(), llama_8b)
    assert plan.load == 2 * 128256 * 4096
    gptq = qlora()
    gptq.weights.quantization = Quantization("gptq", 4)
    assert sharded_state(gptq, llama_8b).load == 0
    assert sharded_state(job(), llama_8b).load == 0


def test_gradients_grow_with_what_is_done(llama_8b):
    plan = sharded_state(job(), llama_8b)
    assert plan.gradient_bytes(0) == 0
    assert plan.gradient_bytes(1000) == pytest.approx(2000, abs=2)
    assert plan.gradient_bytes(plan.trainable) == plan.gradients
    assert plan.gradient_bytes(10 * plan.trainable) == plan.gradients


PLANS = {
    "one gpu": job(),
    "ddp": job(8, dtype="float32", optimizer=Optimizer("adamw_8bit")),
    "qlora": qlora(),
    "zero 1": job(8, parallelism=Parallelism(zero=Zero(1)), precision=Precision(master_weights=True)),
    "zero 2": job(8, parallelism=Parallelism(zero=Zero(2)), precision=Precision(master_weights=True)),
    "zero 3": job(8, parallelism=Parallelism(zero=Zero(3)), precision=Precision(master_weights=True)),
    "fsdp 1": job(8, parallelism=Parallelism(fsdp=Fsdp(1, wrap="transformer"))),
    "fsdp 2": job(
        8,
        dtype="float32",
        parallelism=Parallelism(fsdp=Fsdp(2, wrap="none", mixed_precision=FsdpMixedPrecision("bfloat16"))),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_term_has_a_source(llama_8b, name):
    plan = sharded_state(PLANS[name], llama_8b)
    terms = [*plan.resident, *plan.step_buffers, *plan.all_gradients, *plan.in_step, *plan.loading]
    assert all(term.source and term.formula for term in terms)
    assert plan.weights + plan.adapter + plan.optimizer == sum(term.size for term in plan.resident)


def test_expert_parallelism_leaves_fewer_ranks_to_share_an_expert():
    plan = Job(hardware=Hardware(gpus=16, nodes=2), parallelism=Parallelism(expert=4))
    assert ranks(plan)[:2] == (16, 4)
    assert ranks(plan, over=8)[:2] == (8, 2)


def test_experts_with_a_tensor_degree_of_their_own(decoder):
    """16 ranks, t = 4: 4 data-parallel ranks; e = 4 and t' = 1 put 16 / 4 = 4 ranks on each expert."""
    plan = Job(hardware=Hardware(gpus=16), parallelism=Parallelism(tensor=4, expert=4, expert_tensor=1))
    assert ranks(plan)[:2] == (4, 4)
    plan.parallelism.expert_tensor = None
    assert ranks(plan)[:2] == (4, 1)
    plan.parallelism.expert_tensor = 1
    (tensor,) = [t for t in decoder(layers=2, experts=8).tensors if t.role == "expert_down"]
    assert divided(tensor, plan, decoder(layers=2, experts=8))[0] == (2, 4096, 14336)
    assert per_node(plan) == 8
    assert per_node(Job(hardware=Hardware(gpus=32))) == 8
    assert per_node(Job()) == 1
