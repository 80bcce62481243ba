"""FSDP: shards, gathered units, whole gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.forward.network import network
from gpulint.estimator.layers.state import ReplayState
from gpulint.estimator.peak_candidate import PeakCandidate
from gpulint.estimator.sharding.fsdp_state import UNITS
from gpulint.estimator.sharding.fsdp_units import Policy, units
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.states.parameters import parameters
from gpulint.estimator.training import estimate_training
from gpulint.job.job import (
    Adapter,
    Fsdp,
    FsdpMixedPrecision,
    Hardware,
    Job,
    Optimizer,
    Parallelism,
    Quantization,
    Weights,
)
from gpulint.models.resolve import resolve

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}

LAYER = 218_103_808 + 2 * 4096
"""Elements of one decoder layer of Llama-3-8B."""

PLAIN = Policy(None, None)
ROOT = 2 * 128256 * 4096 + 4096
"""Embedding, head and final norm."""


def job(gpus=8, dtype="bfloat16", name="adamw_torch_fused", micro_steps=1, nodes=None, **fsdp):
    return Job(
        model="test",
        weights=Weights(dtype),
        optimizer=Optimizer(name),
        gradient_accumulation_steps=micro_steps,
        hardware=Hardware(gpus=gpus, nodes=nodes),
        parallelism=Parallelism(fsdp=Fsdp(**{"wrap": "transformer", **fsdp})),
    )


def at(phase, layer, gradients=0, fresh=0):
    return PeakCandidate(phase, 0, 0, gradients, layer, fresh)


def test_layers_are_units_and_the_rest_is_the_root(llama_8b):
    found = units(Fsdp(wrap="transformer"), llama_8b, parameters(job(), llama_8b), PLAIN)
    assert (found.root.elements, found.block.elements, found.blocks) == (ROOT, LAYER, 32)
    assert found.everything.elements == llama_8b.parameters


def test_without_a_wrap_policy_the_model_is_one_unit(llama_8b):
    found = units(Fsdp(wrap="none"), llama_8b, parameters(job(), llama_8b), PLAIN)
    assert (found.root.elements, found.block.elements, found.blocks) == (llama_8b.parameters, 0, 0)


@pytest.mark.parametrize(("minimum", "wrapped"), [(100_000_000, 32), (300_000_000, 0)])
def test_size_based_wrap_takes_layers_that_are_large_enough(llama_8b, minimum, wrapped):
    fsdp = Fsdp(wrap="size", min_num_params=minimum)
    found = units(fsdp, llama_8b, parameters(job(), llama_8b), PLAIN)
    assert found.blocks == wrapped
    assert found.root.elements == (ROOT if wrapped else llama_8b.parameters)


def test_every_state_is_divided(llama_8b):
    plan = sharded_state(job(), llama_8b)
    share = llama_8b.parameters / 8
    assert plan.weights == pytest.approx(2 * share, rel=1e-6)
    counters = 512 * 291  # the fused step's count of every parameter, in a block of its own
    assert plan.optimizer == pytest.approx(4 * share + counters, rel=1e-6)
    assert plan.gradient_bytes(plan.trainable) == pytest.approx(2 * share, rel=1e-6)


def test_mixed_precision_shards_in_float32_and_gathers_in_16_bits(llama_8b):
    policy = FsdpMixedPrecision("bfloat16", "bfloat16")
    plan = sharded_state(job(upcast_trainable=True, mixed_precision=policy), llama_8b)
    share = llama_8b.parameters / 8
    assert plan.weights + plan.optimizer == pytest.approx((4 + 8) * share, rel=1e-4)
    assert plan.buffer_bytes(at("forward", 5)) == 2 * (ROOT + LAYER)


def test_foreach_adam_copies_a_shard_at_the_step(llama_8b):
    """Mistral-7B in pure 16 bits peaks at 10 B a parameter over the ranks (fms-acceleration's 36.2 GB on two)."""
    plan = sharded_state(job(gpus=2, name="adamw_torch"), llama_8b)
    step = plan.weights + plan.gradients + plan.optimizer + plan.step_optimizer
    assert step == pytest.approx(10 * llama_8b.parameters / 2, rel=1e-6)


@pytest.mark.parametrize(("version", "forward"), [(1, 1), (2, 2)])
def test_forward_gathers_the_root_and_one_layer_and_version_2_its_flat_buffer(llama_8b, version, forward):
    plan = sharded_state(job(version=version), llama_8b)
    assert plan.buffer_bytes(at("forward", 5)) == 2 * (ROOT + forward * LAYER)


HEAD = 128256 * 4096 + 4096
"""Elements whose gradients the root has before those of the layers: head and final norm."""


def test_backward_also_prefetches_and_holds_whole_gradients(llama_8b):
    """Version 1 flattens a finished unit's gradients into one tensor; version 2 keeps the last unit's reduction."""
    plan, second = sharded_state(job(), llama_8b), sharded_state(job(version=2), llama_8b)
    half, done = at("backward", 5, HEAD + 20 * LAYER, LAYER // 2), at("backward", 5, HEAD + 20 * LAYER, LAYER)
    assert plan.buffer_bytes(half) == 2 * (ROOT + HEAD + 2 * LAYER + LAYER // 2)
    assert plan.buffer_bytes(done) == 2 * (ROOT + HEAD + 2 * LAYER + 2 * LAYER)
    assert second.buffer_bytes(half) == 2 * (ROOT + HEAD + 2 * LAYER + LAYER // 2 + LAYER)
    assert second.buffer_bytes(done) == 2 * (ROOT + HEAD + 2 * LAYER + 2 * LAYER)


@pytest.mark.parametrize(
    ("policy", "units"), [(None, 2), ("backward_pre", 2), ("1", 2), ("BACKWARD_POST", 1), ("NO_PREFETCH", 1)]
)
def test_backward_gathers_the_next_unit_beside_the_one_in_use_as_the_policy_says(llama_8b, policy, units):
    """torch's default is BACKWARD_PRE; version 2 has no such setting and always prefetches."""
    whole = sharded_state(job(backward_prefetch=policy), llama_8b)
    half = at("backward", 5, HEAD + 20 * LAYER, LAYER // 2)
    assert whole.buffer_bytes(half) == 2 * (ROOT + HEAD + units * LAYER + LAYER // 2)
    lines = whole.buffers_at(half)
    assert sum(line.size for line in lines) == whole.buffer_bytes(half)
    times = "2 x " if units == 2 else ""
    assert [line.formula for line in lines if line.label == UNITS] == [f"{times}2 B x {LAYER:,} elements"]
    second = sharded_state(job(version=2, backward_prefetch=policy), llama_8b)
    assert second.buffer_bytes(half) == sharded_state(job(version=2), llama_8b).buffer_bytes(half)


def test_the_root_has_the_embedding_s_gradient_last(llama_8b):
    plan = sharded_state(job(), llama_8b)
    before, after = (at("backward", None, llama_8b.parameters - cut) for cut in (128256 * 4096, 0))
    flat = 2 * ROOT
    assert plan.buffer_bytes(after) - plan.buffer_bytes(before) == 2 * 128256 * 4096 + flat


def test_the_root_s_gradients_are_copied_for_its_reduction(llama_8b):
    """Version 1 joins them to the gradient of the flat parameter, version 2 copies them in the reduce dtype."""
    for version, reduced in ((1, 2), (2, 2), (2, 4)):
        given = job(version=version)
        given.parallelism.fsdp.mixed_precision.reduce_dtype = {2: "bfloat16", 4: "float32"}[reduced]
        plan = sharded_state(given, llama_8b)
        end = at("backward", None, llama_8b.parameters)
        assert plan.ending(end)
        assert not plan.ending(at("backward", 0, llama_8b.parameters - 1))
        last = plan.buffer_bytes(at("backward", None, llama_8b.parameters - 1))
        assert plan.buffer_bytes(end) - last == pytest.approx(reduced * ROOT, abs=4)


def test_later_micro_steps_hold_whole_gradients_from_the_first_layer_on(llama_8b):
    given = job()
    given.gradient_accumulation_steps, given.longest_batch_first = 4, True
    plan = sharded_state(given, llama_8b)
    (instant,) = plan.later()
    assert (instant.layer, instant.activations) == (31, 0)
    assert plan.gradient_bytes(instant.gradient_elements) == plan.deferred
    given.longest_batch_first = False
    assert not sharded_state(given, llama_8b).later()


def test_embedding_and_head_as_units_of_their_own(llama_8b):
    """torchtune's custom_sharded_layers: only the final norm stays gathered while the layers run."""
    plan = sharded_state(job(version=2, outer="separate"), llama_8b)
    assert plan.buffer_bytes(at("forward", 5)) == 2 * (4096 + 2 * LAYER)
    assert plan.buffer_bytes(at("loss", None)) == 2 * (4096 + LAYER + 2 * 128256 * 4096)
    assert plan.weights == sharded_state(job(version=2), llama_8b).weights


def test_resharding_to_a_smaller_group_keeps_that_share(llama_8b):
    plan = sharded_state(job(version=2, reshard_after_forward=4), llama_8b)
    assert plan.buffer_bytes(at("backward", 31)) == 2 * (ROOT + 8 * LAYER + 2 * LAYER + LAYER)


def adapted(llama, **fsdp):
    plan = job(**fsdp)
    plan.method, plan.adapter = "lora", Adapter(r=16, targets=["q_proj", "v_proj"], dtype="bfloat16")
    return sharded_state(plan, llama)


def test_adapters_in_the_flat_parameter_of_their_layer_sweep_it_along(llama_8b):
    """LitGPT wraps blocks only: autograd makes the gradient of the whole flat parameter, frozen weights included.

    torch's own warning counts them ("the gradient memory usage will be higher than expected", fsdp/wrap.py).
    """
    pairs = 32 * 16 * (4096 + 4096 + 4096 + 1024)
    apart, together = adapted(llama_8b), adapted(llama_8b, wrap_adapters=False)
    assert (apart.trainable, together.trainable) == (pairs, pairs + 32 * LAYER)
    assert together.gradients == pytest.approx(2 * (pairs + 32 * LAYER) / 8, rel=1e-6)
    assert together.optimizer == pytest.approx(apart.optimizer, rel=1e-3)
    whole = adapted(llama_8b, wrap_adapters=False, micro_steps=4)
    assert whole.gradient_bytes(0) == 2 * (pairs + 32 * LAYER)


def test_version_2_leaves_each_parameter_its_own_gradient(llama_8b):
    assert adapted(llama_8b, version=2, wrap_adapters=False).trainable == adapted(llama_8b, version=2).trainable


def test_without_a_wrap_policy_everything_is_gathered_all_the_time(llama_8b):
    plan = sharded_state(job(wrap="none"), llama_8b)
    assert plan.buffer_bytes(at("forward", 0)) == 2 * llama_8b.parameters


def test_shard_grad_op_keeps_the_units_it_has_passed(llama_8b):
    plan = sharded_state(job(sharding="shard_grad_op"), llama_8b)
    assert plan.buffer_bytes(at("forward", 3)) == 2 * (ROOT + 4 * LAYER)
    assert plan.buffer_bytes(at("loss", None)) == 2 * llama_8b.parameters


def test_the_last_layer_may_stay_for_its_backward(llama_8b):
    """torchtitan until July 2025: whole from its forward on, and not gathered again."""
    found = (
        sharded_state(job(version=2), llama_8b),
        sharded_state(job(version=2, keeps_last_layer_gathered=True), llama_8b),
    )
    loss, head = at("loss", None), at("backward", None)
    for instant in (loss, head):
        plain, kept = (built.buffer_bytes(instant) for built in found)
        assert kept - plain == 2 * LAYER
    for instant in (at("forward", 3), at("backward", 31), at("backward", None, found[0].trainable)):
        plain, kept = (built.buffer_bytes(instant) for built in found)
        assert kept == plain


def test_no_shard_is_data_parallelism(llama_8b):
    plan = sharded_state(job(sharding="no_shard"), llama_8b)
    assert plan.weights == 2 * llama_8b.parameters


def test_hybrid_shard_divides_over_the_gpus_of_a_node(llama_8b):
    plan = sharded_state(job(gpus=32, nodes=4, sharding="hybrid_shard"), llama_8b)
    assert plan.weights == pytest.approx(2 * llama_8b.parameters / 8, rel=1e-6)


@pytest.mark.parametrize(("gpus", "ranks"), [(7, 7), (8, 8), (9, 4), (12, 6), (16, 8), (17, 5)])
def test_hybrid_shard_takes_nodes_of_at_most_eight_gpus_where_none_are_stated(llama_8b, gpus, ranks):
    """9 GPUs are two nodes, 17 are three."""
    plan = sharded_state(job(gpus=gpus, sharding="hybrid_shard"), llama_8b)
    assert plan.weights == pytest.approx(2 * llama_8b.parameters / ranks, rel=1e-5)


def test_offload_leaves_only_gathered_units(llama_8b):
    plan = sharded_state(job(offload=True), llama_8b)
    assert plan.weights == plan.optimizer == plan.gradient_bytes(plan.trainable) == plan.step_optimizer == 0
    assert plan.host == pytest.approx(8 * llama_8b.parameters, rel=1e-3)
    assert plan.buffer_bytes(at("forward", 0)) > 0


def test_accumulation_without_sync_keeps_whole_gradients(llama_8b):
    plan = sharded_state(job(micro_steps=4), llama_8b)
    assert plan.gradient_bytes(0) == 2 * llama_8b.parameters
    synced = sharded_state(job(micro_steps=4, sync_each_batch=True), llama_8b)
    assert synced.gradient_bytes(0) == pytest.approx(2 * llama_8b.parameters / 8, rel=1e-6)


def test_two_micro_steps_make_the_whole_gradients_and_divide_them(llama_8b):
    """Half way the first step has half of them; the second has half of them and half of the shards."""
    plan = sharded_state(job(micro_steps=2), llama_8b)
    n = llama_8b.parameters
    assert plan.gradient_bytes(0) == 2 * n
    assert plan.gradient_bytes(n // 2) == pytest.approx(n + n / 8, rel=1e-6)


@pytest.mark.parametrize(("accelerate", "defers"), [("1.10.1", False), ("1.11.0", True), (None, True)])
def test_version_2_defers_from_accelerate_1_11_on(llama_8b, accelerate, defers):
    """Before, no_sync looked for a method that FSDP 2's modules do not have."""
    for version in (1, 2):
        plan = job(version=version, micro_steps=4)
        plan.versions = {"accelerate": accelerate} if accelerate else {}
        assert bool(sharded_state(plan, llama_8b).deferred) == (defers or version == 1)


@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    version=st.sampled_from([1, 2]),
    wrap=st.sampled_from(["none", "transformer"]),
    name=st.sampled_from(["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adamw_torch_8bit"]),
)
def test_more_ranks_never_keep_more(tiny, ranks, version, wrap, name):
    def states(gpus):
        plan = sharded_state(job(gpus=gpus, version=version, wrap=wrap, name=name), tiny)
        assert min(plan.weights, plan.optimizer, plan.gradients, plan.load) >= 0
        return plan.weights + plan.optimizer + plan.gradients

    assert states(2 * ranks) <= states(ranks) + 200 * 512
    away = sharded_state(job(gpus=ranks, version=version, wrap=wrap, name=name, offload=True), tiny)
    assert away.weights + away.optimizer + away.gradients <= states(ranks)


def test_frozen_layers_under_reentrant_checkpointing_keep_their_inputs(llama_8b):
    """Version 1 hangs its reshard on the layers' inputs, which keeps them and their gradients: 2 x 2 T h a layer.

    The gradient of the last of them is what the layer in flight was handed.
    """
    plan = job(sync_each_batch=False)
    plan.method, plan.adapter = "lora", Adapter(r=16, targets=["q_proj", "v_proj"])
    plan.micro_batch_size, plan.sequence_length, plan.activation_checkpointing = 2, 4096, "full"
    plan.reentrant = False
    lean, plan.reentrant = sharded_state(plan, llama_8b), True
    kept = sharded_state(plan, llama_8b)
    each = 2 * 2 * 2 * 4096 * 4096
    assert kept.activation_bytes(at("backward", 0)) - lean.activation_bytes(at("backward", 0)) == 31 * each - each // 2
    assert kept.activation_bytes(at("backward", 31)) == lean.activation_bytes(at("backward", 31))
    plan.reentrant, plan.versions = None, {"transformers": "4.48.1"}
    assert sharded_state(plan, llama_8b).kept == each
    plan.versions = {"transformers": "5.23.0"}
    assert sharded_state(plan, llama_8b).kept == 0


def test_keys_and_values_live_on_under_the_checkpoint_wrapper(llama_8b):
    """2 x 2 B x 4,096 tokens x 1,024 of each layer, till the loss is there; those of the step before where named."""
    plan = job(checkpoints_inside=True)
    plan.micro_batch_size, plan.sequence_length, plan.activation_checkpointing = 2, 2048, "full"
    plan.versions["transformers"] = "4.31.0"
    one = 2 * 2 * 4096 * 1024

    def held(where):
        return sharded_state(plan, llama_8b).activation_bytes(where)

    assert [held(at("forward", 3)), held(at("loss", None)), held(at("backward", 3))] == [3 * one, 32 * one, 0]
    plan.loss.kept = True
    assert [held(at("forward", 3)), held(at("loss", None)), held(at("backward", 3))] == [35 * one, 32 * one, 32 * one]
    plan.versions["transformers"] = "4.36.0"
    assert held(at("loss", None)) == 0


def test_scales_of_a_packed_base_stay_whole(llama_8b):
    plan = job()
    plan.method, plan.adapter = "lora", Adapter(r=16, targets=["q_proj", "v_proj"])
    plan.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True, storage_dtype="bfloat16")
    codes, scales = 6_979_321_856 / 2, 6_979_321_856 / 64 * (1 + 4 / 256)
    rest = 2 * (8_030_261_248 - 6_979_321_856)
    assert sharded_state(plan, llama_8b).weights == pytest.approx((codes + rest) / 8 + scales, rel=1e-3)


@pytest.mark.parametrize("storage", ["uint8", "bfloat16"])
def test_packed_weights_are_whole_once_while_they_are_loaded(llama_8b, storage):
    """In bytes they stay whole, as bfloat16 they are sharded then: with more ranks no rank holds more of them."""

    def while_loading(gpus):
        plan = job(gpus)
        plan.weights.quantization = Quantization("bnb-nf4", 4, storage_dtype=storage)
        found = sharded_state(plan, llama_8b)
        return found.weights + found.load

    assert while_loading(16) <= while_loading(8)


@pytest.mark.parametrize(("version", "framework", "copies"), [(1, None, 1), (2, None, 2), (2, "torchtune", 1)])
def test_accelerate_holds_the_whole_packed_model_beside_the_shards_of_version_2(llama_8b, version, framework, copies):
    plan = replace(job(1, version=version), framework=framework)
    plan.weights.quantization = Quantization("bnb-nf4", 4, storage_dtype="bfloat16")
    packed = sum(item.allocated for item in parameters(plan, llama_8b) if item.packed)
    found = sharded_state(plan, llama_8b)
    others = found.weights - packed
    assert found.weights + found.load - others == pytest.approx(copies * packed, rel=0.05)


def test_a_patched_fsdp_shards_weights_that_are_stored_in_bytes(llama_8b):
    def weights(**fsdp):
        plan = job(8, version=2, **fsdp)
        plan.weights.quantization = Quantization("bnb-int8", 8)
        return sharded_state(plan, llama_8b).weights

    assert weights(shards_packed=True) < weights() / 3


def test_one_tensor_at_a_time_is_one_unit_s_share_and_not_the_whole_model_s(llama_8b):
    given = job(dtype="float32", name="adamw_torch", use_orig_params=False)
    given.optimizer.foreach = False
    root = 4 * 2 * 128256 * 4096 // 8  # the outermost unit: embeddings and head
    assert 0 < sharded_state(given, llama_8b).step_optimizer < 4 * root


def test_virtual_tokens_are_among_what_finished_layers_keep(llama_8b):
    plan = replace(job(), micro_batch_size=2, sequence_length=1000, activation_checkpointing="full", reentrant=True)
    low_rank = Adapter(r=8, targets=["q_proj"])
    prompt = Adapter(type="prompt_tuning", options={"num_virtual_tokens": 100})
    plain, longer = (
        sharded_state(replace(plan, method="lora", adapter=adapter), llama_8b).kept for adapter in (low_rank, prompt)
    )
    assert plain == 2 * 2 * 2 * 1000 * 4096
    assert longer * 1000 == plain * 1100


ALBERT = {"model_type": "albert", "num_hidden_layers": 12, "vocab_size": 1000}


@pytest.mark.parametrize("version", [1, 2])
def test_layers_that_are_one_and_the_same_are_one_unit_that_runs_often(version):
    model = resolve(ALBERT)
    plan = job(version=version)
    built = sharded_state(plan, model)
    unit = built.units.block
    assert (built.units.blocks, built.reused) == (1, 12)
    middle, first, last = (
        built.buffer_bytes(at("backward", layer, built.trainable, fresh))
        for layer, fresh in ((5, 0), (0, 0), (11, unit.graded))
    )
    assert first > middle >= last
    assert middle - built.buffer_bytes(at("forward", 5)) >= unit.gradients - unit.gathered
    assert built.buffer_bytes(at("backward", 5)) - built.units.root.gathered < 4 * unit.gathered


def test_each_run_of_a_shared_frozen_unit_keeps_its_inputs():
    plan = replace(job(), micro_batch_size=1, sequence_length=128, activation_checkpointing="full", reentrant=True)
    plan = replace(plan, method="lora", adapter=Adapter(r=8, targets=["query", "value"]))
    built = sharded_state(plan, resolve(ALBERT))
    assert built.kept > 0
    begun, ended = (built.activation_bytes(at("backward", layer)) for layer in (11, 0))
    assert ended - begun == 11 * built.kept - built.kept // 2


@pytest.mark.parametrize("kind", ["lora", "miss", "delora"])
def test_autocast_casts_an_adapter_of_shared_layers_once(kind):
    plan = Job(micro_batch_size=1, sequence_length=128, method="lora")
    plan.adapter = Adapter(type=kind, r=8, targets=["query", "value"])
    weights, state = network(plan, resolve(ALBERT)).weights, ReplayState()
    first, second = (weights.layer(layer, state).require("query") for layer in (0, 1))
    assert not any(leaf.twin for leaf in first.leaves())
    assert all(leaf.twin for leaf in second.leaves())
    assert {*second.parts.values()} <= {*second.leaves()}


def test_states_of_experts_that_ranks_divided_already_are_shared_by_the_rest():
    model = resolve(MIXTRAL)
    kept = []
    for original in (True, False):
        given = job(dtype="float32", name="adamw_torch", use_orig_params=original)
        given.parallelism.expert = 4
        kept.append(sharded_state(given, model).optimizer)
    assert kept[0] == pytest.approx(kept[1], rel=1e-3)


def test_experts_that_each_rank_has_whole_may_be_no_units():
    """They keep gradients of their own width, and nobody gathers them."""
    model = resolve(MIXTRAL)
    kept = {}
    for apart in (True, False):
        given = job(micro_steps=2, version=2, experts_unwrapped=apart)
        given.parallelism.expert, given.parallelism.fsdp.mixed_precision.reduce_dtype = 8, "float32"
        kept[apart] = sharded_state(given, model)
    experts = 3 * 3584 * 1024
    assert kept[False].deferred - kept[True].deferred == 2 * 4 * experts
    assert kept[False].units.block.gathered - kept[True].units.block.gathered == 2 * experts


def test_without_a_wrap_policy_all_is_one_tensor_of_the_optimizer(llama_8b):
    given = job(dtype="float32", name="adamw_torch", use_orig_params=False, wrap="none")
    given.optimizer.foreach = False
    plan = sharded_state(given, llama_8b)
    assert plan.step_optimizer >= plan.optimizer // 2


@pytest.mark.parametrize("version", [1, 2])
def test_gradients_of_one_unit_are_reduced_whole_however_large_the_batch(version):
    plain = {key: value for key, value in MIXTRAL.items() if "experts" not in key}
    model = resolve({**plain, "model_type": "llama", "vocab_size": 256, "num_hidden_layers": 64})

    def backward(batch):
        given = job(version=version, wrap="none", reshard_after_forward=True)
        given.micro_batch_size, given.sequence_length = batch, 2048
        given.activation_checkpointing, given.loss.kernel = "full", "liger"
        phases = estimate_training(given, model, None, replay=False).phases
        return next(phase.allocated for phase in phases if phase.name == "backward")

    needs = [backward(batch) for batch in (1, 4, 8, 16)]
    assert needs[0] == needs[1] == needs[2] < needs[3]


def test_layers_that_stay_gathered_count_by_their_own_sizes():
    """DeepSeek-V3's first three layers are dense and wider than what its others hold beside their experts."""
    model = resolve("deepseek-ai/DeepSeek-V3")
    sharded = {"fsdp": {"version": 2, "wrap": "transformer", "reshard_after_forward": False}, "expert": 64}
    job = Job.validate(
        {
            "model": "deepseek-ai/DeepSeek-V3", "weights": {"dtype": "bfloat16"}, "micro_batch_size": 1,
            "sequence_length": 512, "parallelism": sharded, "hardware": {"gpus": 64},
            "activation_checkpointing": "full", "packing": True,
        }
    )  # fmt: skip
    plan = sharded_state(job, model).units
    assert plan.blocks == len(plan.sizes) == 61
    assert plan.until(61) == plan.layers.gathered < 0.75 * 61 * plan.block.gathered
    found = estimate_training(job, model, None)
    backward = next(phase for phase in found.phases if phase.name == "backward")
    assert backward.components["buffers"] < 1.25 * plan.layers.gathered + 2 * plan.root.gathered
