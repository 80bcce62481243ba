"""What is remembered of equal jobs is what would be worked out anew."""

from __future__ import annotations

import pytest

from gpulint.estimator import budget
from gpulint.estimator.activations import computing, replay
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.forward.network import network
from gpulint.estimator.memoize import Recall
from gpulint.estimator.states.parameters import _parameters, parameters
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

JOB = {
    "model": "Qwen/Qwen2.5-0.5B",
    "micro_batch_size": 2,
    "sequence_length": 1024,
    "hardware": {"gpu": "a100-80gb", "gpus": 8},
    "optimizer": {"name": "adamw_8bit", "foreach": True},
    "evaluation": {"micro_batch_size": 16, "keeps_logits": True},
    "allocator": {"expandable_segments": True},
}
CHANGES = [
    {},
    {"method": "lora", "adapter": {"type": "lora", "r": 8, "targets": "all-linear"}},
    {"activation_checkpointing": "full", "gradient_accumulation_steps": 4},
    {"parallelism": {"zero": {"stage": 3}}, "precision": {"autocast": "bfloat16", "master_weights": True}},
    {"parallelism": {"fsdp": {"version": 1}}, "precision": {"autocast": "bfloat16"}},
    {"parallelism": {"tensor": 2, "sequence": True}, "liger_kernels": True},
    {"weights": {"quantization": {"method": "bnb-nf4", "bits": 4}}, "method": "lora"},
    {"objective": "dpo", "optimizer": {"name": "sgd", "in_backward": True}},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: ",".join(changes) or "plain")
def test_what_is_left_out_of_a_job_changes_neither_its_pass_nor_its_parameters(changes):
    job = Job.validate({**JOB, **changes})
    model = resolve(job.model)

    def events(job):
        whole = network(job, model)
        return replay(whole, whole.kinds()[0]).events

    assert events(job) == events(computing(job))
    assert parameters(job, model) == _parameters.__wrapped__(job, model)


def test_equal_jobs_are_worked_out_once_and_count_twice():
    asked = []

    def work():
        asked.append(1)
        budget.spend(7)
        return object()

    known, model = Recall(2), object()
    before = budget.spent()
    first = known.ask(model, "a", work)
    assert known.ask(model, "a", work) is first
    assert (len(asked), budget.spent() - before) == (1, 14)
    assert known.ask(object(), "a", work) is not first
    known.ask(model, "b", work)
    assert known.ask(model, "a", work) is not first


def test_an_estimate_takes_as_many_steps_again_whatever_was_asked_before():
    job, gpu = Job.validate(JOB), find("a100-80gb")
    model = resolve(job.model)
    found, steps = [], []
    for other in (job, job.with_changes({"optimizer.name": "adafactor"}), job.with_changes({})):
        before = budget.spent()
        found.append(estimate_job(other, model, gpu))
        steps.append(budget.spent() - before)
    assert found[0] == found[2]
    assert steps[0] == steps[2]
    with pytest.raises(NotEstimable):
        estimate_job(job.with_changes({"adapter.type": "unheard of"}), model, gpu)
