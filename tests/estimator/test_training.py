"""A training job put together: instants, phases, tiers, verdict."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.estimator import training
from gpulint.estimator.estimate import COMPONENTS, NotEstimable
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.peak_candidate import PeakCandidate
from gpulint.estimator.phases import MicroStep
from gpulint.hardware.gpu import Gpu
from gpulint.job.job import (
    Evaluation,
    Fsdp,
    Hardware,
    Job,
    Offload,
    Optimizer,
    Parallelism,
    Precision,
    Rl,
    Weights,
    Zero,
)
from gpulint.job.origin import Origin
from gpulint.units import GIB

CARD = Gpu(
    "test-80gb", "Test 80GB", "NVIDIA", "Hopper", 9.0, 80 * GIB, 79 * GIB, True, True, False, True, True, (), "a test"
)


def job(batch=1, length=1024, dtype="bfloat16", **changes):
    return Job(model="test", weights=Weights(dtype), micro_batch_size=batch, sequence_length=length, **changes)


def simple_instants(job, model):
    """A step whose sizes are easy to follow: 100 B a token and layer saved, logits of 2, 10 and 12 B an element."""
    shape, tokens = model.shape, job.micro_batch_size * job.sequence_length
    saved, vocabulary, total = 100 * tokens * shape.layers, tokens * shape.vocabulary, model.parameters
    return [
        PeakCandidate("forward", saved, 2 * vocabulary, 0, shape.layers - 1),
        PeakCandidate("loss", saved, 10 * vocabulary, 0, None),
        PeakCandidate("backward", saved, 12 * vocabulary, 0, None),
        PeakCandidate("backward", saved, 0, total // 3, shape.layers - 1),
        PeakCandidate("backward", 0, 0, total, None),
    ]


@pytest.fixture
def simple(monkeypatch):
    """Replace the activations by the ones above."""
    monkeypatch.setattr(training, "micro_step", lambda job, model, stage=None: MicroStep(simple_instants(job, model)))


def test_the_peak_is_the_largest_instant_and_not_a_sum(simple, llama_8b):
    found = estimate_job(job(), llama_8b, CARD)
    phases = {phase.name: phase for phase in found.phases}
    assert set(phases) == {"load", "forward", "loss", "backward", "optimizer_step"}
    assert found.peak.allocated == max(phase.allocated for phase in found.phases)
    assert found.per_gpu.allocated == found.peak.allocated
    assert phases["loss"].components["gradients"] == 0
    assert phases["load"].components["optimizer"] == 0
    split = found.components
    assert tuple(split) == COMPONENTS
    assert sum(size for name, size in split.items() if name != "runtime") == found.per_gpu.allocated


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"versions": {"torch": "1.13.1"}}, True),
        ({"versions": {"torch": "2.0.0"}}, False),
        ({}, False),
        ({"versions": {"torch": "1.13.1"}, "parallelism": Parallelism(fsdp=Fsdp())}, False),
        ({"gradient_accumulation_steps": 2}, True),
    ],
)
def test_gradients_stay_where_they_are_zeroed_or_accumulated(simple, llama_8b, changes, kept):
    """`zero_grad` frees them since torch 2.0."""
    phases = {phase.name: phase for phase in estimate_job(job(**changes), llama_8b, CARD).phases}
    assert bool(phases["forward"].components["gradients"]) == kept


def test_weights_gradients_and_states_of_pure_16_bit_adam(simple, llama_8b):
    step = next(p for p in estimate_job(job(), llama_8b, CARD).phases if p.name == "optimizer_step")
    parameters = llama_8b.parameters
    assert step.components["weights"] == 2 * parameters
    assert step.components["gradients"] == 2 * parameters
    assert step.components["optimizer"] == 4 * parameters + 291 * 512
    foreach = estimate_job(job(optimizer=Optimizer("adamw_torch")), llama_8b, CARD)
    assert foreach.peak_phase == "optimizer_step"
    assert foreach.components["optimizer"] == pytest.approx(6 * parameters, rel=1e-4)


def test_gradients_stay_from_the_first_micro_step_on(simple, llama_8b):
    found = estimate_job(job(gradient_accumulation_steps=2), llama_8b, CARD)
    loss = next(phase for phase in found.phases if phase.name == "loss")
    assert loss.components["gradients"] == 2 * llama_8b.parameters


def test_data_parallelism_adds_a_copy_of_the_gradients(simple, llama_8b):
    one, eight = (estimate_job(job(hardware=Hardware(gpus=n)), llama_8b, CARD) for n in (1, 8))
    assert eight.per_gpu.allocated - one.per_gpu.allocated == 2 * llama_8b.parameters
    assert eight.runtime > one.runtime


def test_stepping_in_the_backward_pass_leaves_one_gradient(simple, llama_8b):
    found = estimate_job(job(length=16, optimizer=Optimizer("adamw_torch", in_backward=True)), llama_8b, CARD)
    assert max(phase.components["gradients"] for phase in found.phases) == 2 * 128256 * 4096


def test_logits_that_the_loop_still_names_are_there_in_the_step(llama_8b):
    steps = []
    for kept in (True, "step"):
        given = job()
        given.loss.kept = kept
        found = estimate_job(given, llama_8b, None)
        steps.append(next(phase.allocated for phase in found.phases if phase.name == "optimizer_step"))
    assert steps[0] - steps[1] == 2 * 1024 * llama_8b.shape.vocabulary


@pytest.mark.parametrize(("layers", "verdict"), [(16, "fits"), (42, "tight"), (60, "exceeds")])
def test_verdicts(simple, decoder, layers, verdict):
    assert estimate_job(job(), decoder(layers=layers), CARD).verdict == verdict


def test_without_a_gpu_there_is_no_verdict(simple, llama_8b):
    found = estimate_job(job(), llama_8b, None)
    assert found.verdict == "unknown"
    assert found.capacity is None
    assert found.per_gpu.low <= found.per_gpu.process <= found.per_gpu.high


def test_an_unknown_length_leaves_a_lower_bound(decoder):
    found = estimate_job(job(length=None), decoder(layers=8), CARD)
    assert {phase.name for phase in found.phases} == {"load", "optimizer_step"}
    assert found.verdict == "unknown"
    assert {item.field for item in found.assumptions} == {"sequence_length"}
    assert found.per_gpu.high == CARD.usable
    anywhere = estimate_job(job(length=None), decoder(layers=8), None).per_gpu
    assert anywhere.low < anywhere.high == anywhere.process
    assert estimate_job(job(batch=None), decoder(layers=60), CARD).verdict == "exceeds"


def test_a_length_that_nothing_cuts_to_may_be_longer(decoder):
    model = decoder(layers=4)
    model.config["max_position_embeddings"] = 1 << 20
    stated = estimate_job(job(), model, CARD)
    uncut = estimate_job(job(unstated=["sequence_length"]), model, CARD)
    assert (stated.verdict, uncut.verdict) == ("fits", "tight")
    assert uncut.per_gpu.process == stated.per_gpu.process
    assert stated.per_gpu.high < CARD.usable < uncut.per_gpu.high


def test_a_model_without_tensors_is_refused(llama_8b):
    with pytest.raises(NotEstimable, match="test/decoder"):
        estimate_job(job(), llama_8b._replace(tensors=()), CARD)


def test_defaults_and_guesses_that_matter_are_listed(simple, llama_8b):
    plan = job()
    plan.origins["sequence_length"] = Origin("default", "default of axolotl 0.19.0")
    plan.origins["micro_batch_size"] = Origin("file", "", "a.yaml", "micro_batch_size")
    plan.origins["hardware.gpus"] = Origin("assumed", "nobody states it")
    plan.hardware.gpus = 2
    listed = {item.field: item for item in estimate_job(plan, llama_8b, CARD).assumptions}
    assert set(listed) == {"sequence_length", "hardware.gpus"}
    assert listed["sequence_length"].value == "1024"
    assert listed["sequence_length"].origin == "default of axolotl 0.19.0"


def test_an_unknown_optimizer_or_architecture_is_said(simple, llama_8b):
    found = estimate_job(job(optimizer=Optimizer("adamzilla")), llama_8b._replace(exact=False), CARD)
    assert {item.field for item in found.assumptions} == {"optimizer.name", "model"}


def test_terms_name_every_component_with_its_arithmetic(simple, llama_8b):
    found = estimate_job(job(), llama_8b, CARD)
    terms, by = (*found.peak.terms, *found.beside), {}
    for term in terms:
        by[term.component] = by.get(term.component, 0) + term.size
        assert term.formula
        assert term.source
    assert by["weights"] == 2 * llama_8b.parameters
    assert any("2 B (bfloat16) x 8,030,261,248 parameters" in term.formula for term in terms)


def test_dpo_holds_a_reference_model_unless_precomputed(simple, llama_8b):
    plain = estimate_job(job(), llama_8b, CARD)
    dpo = estimate_job(job(objective="dpo"), llama_8b, CARD)
    assert dpo.components["weights"] == 2 * plain.components["weights"]
    ready = estimate_job(job(objective="dpo", rl=Rl(precompute_reference=True)), llama_8b, CARD)
    assert ready.components == plain.components


def test_ppo_holds_a_reward_model_and_trains_a_value_model(simple, llama_8b):
    """Policy, reference, and the reward model without its head; the value model with gradients and two moments."""
    body = llama_8b.parameters - 128256 * 4096
    counters = 512 * (1 + 9 * 32 + 1)
    weights = estimate_job(job(objective="ppo"), llama_8b, CARD).components["weights"]
    assert weights == 2 * 2 * llama_8b.parameters + 2 * body + (2 + 2 + 2 * 2) * body + counters


def test_a_value_head_brings_no_model(simple, llama_8b):
    body = llama_8b.parameters - 128256 * 4096
    weights = estimate_job(job(objective="ppo", rl=Rl(value_model="head")), llama_8b, CARD).components["weights"]
    assert weights == 2 * 2 * llama_8b.parameters + 2 * body


def test_a_reward_model_that_is_known_has_its_own_size(simple, llama_8b):
    named = Rl(value_model="head", reward_model="Qwen/Qwen2.5-0.5B")
    weights = estimate_job(job(objective="ppo", rl=named), llama_8b, CARD).components["weights"]
    reward = weights - 2 * 2 * llama_8b.parameters
    assert reward == pytest.approx(2 * 494_032_768, rel=1e-3)


def test_the_reference_model_is_divided_as_the_policy_is(simple, llama_8b):
    zero = Parallelism(zero=Zero(3))
    alone, both = (
        estimate_job(job(objective=kind, parallelism=zero, hardware=Hardware(gpus=8)), llama_8b, CARD)
        for kind in ("sft", "dpo")
    )
    extra = both.components["weights"] - alone.components["weights"]
    assert extra == pytest.approx(2 * llama_8b.parameters / 8, rel=1e-6)


def test_a_reference_that_wants_gradients_has_autocasts_copies_when_the_policys_are_gone(llama_8b):
    """One set of copies at a time: what comes on top is what the policy's logits take, which have a name."""

    def forward(apart):
        plan = job(
            dtype="float32",
            objective="dpo",
            precision=Precision(autocast="bfloat16"),
            activation_checkpointing="full",
            gradient_accumulation_steps=4,
            rl=Rl(reference_apart=apart),
        )
        found = next(phase for phase in estimate_job(plan, llama_8b, None).phases if phase.name == "forward")
        return found.allocated, 2 * plan.micro_batch_size * plan.sequence_length * 128256

    layers = 2 * 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    (alone, _), (apart, logits) = forward(apart=False), forward(apart=True)
    assert 4 * logits < apart - alone < layers


def test_evaluation_at_a_larger_batch_can_be_the_peak(simple, decoder):
    found = estimate_job(job(evaluation=Evaluation(micro_batch_size=32)), decoder(layers=4), CARD)
    assert found.peak_phase == "evaluation"
    assert found.components["logits"] == 10 * 32 * 1024 * 128256
    assert found.components["gradients"] == 0


def test_a_colocated_engine_takes_its_share_all_the_time_or_sleeps(simple, decoder):
    model = decoder(layers=4)
    rl = Rl(vllm="colocate", vllm_gpu_memory_utilization=0.3)
    awake = estimate_job(job(objective="grpo", rl=rl), model, CARD)
    asleep = estimate_job(
        job(objective="grpo", rl=Rl(vllm="colocate", vllm_gpu_memory_utilization=0.3, vllm_sleep=True)), model, CARD
    )
    share = int(0.3 * CARD.usable)
    assert awake.components["kv_cache"] == share
    assert awake.per_gpu.allocated - share == max(p.allocated for p in asleep.phases if p.name != "generation")
    assert "generation" in {phase.name for phase in asleep.phases}


def test_paged_states_can_live_in_main_memory(simple, llama_8b):
    paged = estimate_job(job(optimizer=Optimizer("paged_adamw_32bit")), llama_8b, CARD)
    assert paged.components["optimizer"] < 0.01 * GIB
    assert paged.host == pytest.approx(8 * llama_8b.parameters, rel=1e-3)
    assert paged.per_gpu.process <= CARD.usable
    assert paged.per_gpu.high >= paged.per_gpu.process


OPTIMIZERS = ["adamw_torch", "adamw_torch_fused", "adamw_8bit", "adafactor", "sgd", "paged_adamw_8bit", "galore_adamw"]


@st.composite
def jobs(draw):
    """Training jobs of every layout."""
    zero = draw(st.one_of(st.none(), st.builds(Zero, st.integers(1, 3), reduce_bucket_size=st.integers(1, 10**6))))
    fsdp = None
    if zero is None:
        versions, wraps = st.sampled_from([1, 2]), st.sampled_from(["none", "transformer"])
        fsdp = draw(st.one_of(st.none(), st.builds(Fsdp, version=versions, wrap=wraps, offload=st.booleans())))
    elif draw(st.booleans()):
        zero.offload_optimizer = Offload("cpu")
    return job(
        draw(st.integers(1, 8)),
        draw(st.integers(16, 4096)),
        draw(st.sampled_from(["bfloat16", "float32"])),
        precision=Precision(master_weights=zero is not None),
        optimizer=Optimizer(draw(st.sampled_from(OPTIMIZERS))),
        objective=draw(st.sampled_from(["sft", "dpo", "ppo"])),
        gradient_accumulation_steps=draw(st.integers(1, 2)),
        parallelism=Parallelism(zero=zero, fsdp=fsdp),
        hardware=Hardware(gpus=draw(st.sampled_from([1, 2, 8]))),
        evaluation=Evaluation(draw(st.sampled_from([None, 1, 4]))),
    )


@given(plan=jobs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_every_estimate_holds_together(simple, tiny, plan):
    found = estimate_job(plan, tiny, CARD)
    for phase in found.phases:
        assert all(isinstance(size, int) and size >= 0 for size in phase.components.values()), phase
    assert found.peak.allocated == max(phase.allocated for phase in found.phases)
    assert sum(v for k, v in found.components.items() if k != "runtime") == found.per_gpu.allocated
    tiers = found.per_gpu
    assert 0 < tiers.allocated <= tiers.reserved <= tiers.process
    assert tiers.low <= tiers.process <= tiers.high
    assert found.host >= 0


@given(plan=jobs(), more=st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_larger_batch_never_needs_less(simple, tiny, plan, more):
    """Of tensors; how well they share freed blocks depends on their sizes, so what is reserved may shrink a little."""
    before = estimate_job(plan, tiny, CARD, spread="never").per_gpu  # which is about `high` alone
    plan.micro_batch_size += more
    after = estimate_job(plan, tiny, CARD, spread="never").per_gpu
    assert before.allocated <= after.allocated
    assert before.low <= after.low


def test_offloaded_checkpoints_are_in_main_memory(simple, llama_8b):
    found = estimate_job(job(batch=2, activation_checkpointing="offload"), llama_8b, CARD)
    assert found.host == 2 * 2 * 1024 * 4096 * 32


def test_the_reference_model_is_not_upcast(simple, llama_8b):
    fsdp = Parallelism(fsdp=Fsdp(wrap="transformer", upcast_trainable=True))
    plans = [job(objective=kind, parallelism=fsdp, hardware=Hardware(gpus=8)) for kind in ("sft", "dpo")]
    alone, both = (estimate_job(plan, llama_8b, CARD).components["weights"] for plan in plans)
    assert both - alone == pytest.approx(2 * llama_8b.parameters / 8, rel=1e-6)
