"""torch.nn.DataParallel: what the first GPU of a process holds beside what a process of its own would."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

GPT2 = "openai-community/gpt2"
LOGITS = 8 * 1024 * 50257 * 4


def job(gpus: int = 8, **changes: object) -> Job:
    """`run_clm.py` as transformers 4.13 ran it on several GPUs without a launcher."""
    plain = Job.validate(
        {
            "model": GPT2,
            "objective": "pretrain",
            "packing": True,
            "weights": {"dtype": "float32"},
            "optimizer": {"name": "adamw_torch"},
            "micro_batch_size": 8,
            "sequence_length": 1024,
            "parallelism": {"one_process": True},
            "versions": {"transformers": "4.13.0", "torch": "2.1"},
            "hardware": {"gpus": gpus},
        }
    )
    return plain.with_changes(changes)


def phase(found, name):
    return next(phase for phase in found.phases if phase.name == name)


def test_the_first_gpu_gathers_all_logits_beside_its_own():
    two, four = (phase(estimate(job(gpus)), "gather").components for gpus in (2, 4))
    assert two["logits"] == 3 * LOGITS
    assert four["logits"] == 5 * LOGITS
    assert four["activations"] == two["activations"]


def test_keys_and_values_come_with_the_outputs_until_the_trainer_turns_them_off():
    """GPT-2: 12 layers of 768 keys and 768 values a token."""
    caches = 8 * 12 * 2 * 768 * 8 * 1024 * 4
    assert phase(estimate(job()), "gather").components["kv_cache"] == caches
    between = estimate(job(**{"versions.transformers": "4.48.0"}))
    assert phase(between, "gather").components["kv_cache"] == 0
    assert caches in [item.high for item in between.assumptions if item.field == "versions.transformers"]
    later = estimate(job(**{"versions.transformers": "5.1.0"}))
    assert phase(later, "gather").components["kv_cache"] == 0
    checkpointed = estimate(job(activation_checkpointing="full"))
    assert phase(checkpointed, "gather").components["kv_cache"] == 0


def test_fused_losses_and_single_gpus_gather_nothing():
    for found in (job(1), job(**{"loss.kernel": "liger"}), job(**{"parallelism.one_process": False})):
        assert not [item for item in estimate(found).phases if item.name == "gather"]


@pytest.mark.parametrize(("steps", "times"), [(1, 2), (4, 3)])
def test_gradients_of_all_gpus_are_summed_into_new_ones(decoder, steps, times):
    """The pass's own and their sum, and those of earlier micro steps."""
    model = decoder()
    plan = sharded_state(job(gradient_accumulation_steps=steps), model)
    assert plan.buffers == 0
    assert plan.gradient_bytes(plan.trainable) == times * plan.gradients
    assert plan.gradient_bytes(plan.trainable - 1) < times * plan.gradients


def test_an_evaluation_gathers_its_logits_too():
    """Those of 16 sequences on the first GPU, and of all four in one tensor: more than its own loss takes."""
    found = estimate(job(4, **{"evaluation.micro_batch_size": 16}))
    assert phase(found, "evaluation").components["logits"] == 5 * 2 * LOGITS


def test_accumulated_gradients_do_not_stand_beside_every_instant():
    """At the logits of the second pass: what the first one left, and nothing of the second yet."""
    once, often = (estimate(job(gradient_accumulation_steps=steps)) for steps in (1, 4))
    whole = sharded_state(job(), resolve(GPT2)).gradients
    assert phase(often, "loss").components["gradients"] == whole
    assert phase(often, "loss").components["gradients"] - phase(once, "loss").components["gradients"] == whole
