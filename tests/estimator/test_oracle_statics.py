"""Weights, gradients and optimizer states against what the real libraries allocated, byte for byte.

`../shared/data/oracle.json`: torch 2.13, transformers 5.23, peft 0.21, bitsandbytes 0.50.
"""

from __future__ import annotations

import pytest

from gpulint.estimator.states import optimizer
from gpulint.estimator.states.gradients import gradient_dtype
from gpulint.estimator.states.optimizer_step import step_temporaries
from gpulint.estimator.states.parameters import elements, parameters
from gpulint.estimator.states.storage import dtype_bytes
from gpulint.models.resolve import resolve


@pytest.fixture(scope="module")
def runs(shared_data, oracle_rows):
    """Every training run of the oracle with its job and its parameters."""
    found = []
    for row in shared_data("oracle"):
        if row["point"].get("mode") != "infer":
            job = oracle_rows.job_of(row)
            found.append((row, job, parameters(job, resolve(row["config"]))))
    assert len(found) == 232
    return found


def test_parameters_are_exact(runs):
    for row, _, items in runs:
        kept = [item for item in items if item.part != "buffer"]
        assert elements(kept) == row["n_params"], row["point"]
        assert elements(item for item in kept if item.trainable) == row["n_trainable"], row["point"]
        assert sum(item.raw for item in kept) == row["params_bytes"], row["point"]


def test_gradients_are_exact(runs):
    for row, job, items in runs:
        trained = [item for item in items if item.trainable]
        gradients = sum(int(item.elements * dtype_bytes(gradient_dtype(item, job))) for item in trained)
        assert gradients == row["grads_bytes"], row["point"]


def test_optimizer_states_are_exact(runs):
    """AdamW in three forms, 8-bit AdamW, Adafactor and SGD, over full models, LoRA and QLoRA."""
    names = set()
    for row, job, items in runs:
        states = optimizer.states(optimizer.items(items), optimizer.of_job(job), job)
        assert states.raw == row["optimizer_bytes"], row["point"]
        names.add(job.optimizer.name)
    assert names == {"adamw_torch", "adamw_torch_fused", "adamw_8bit", "adafactor", "sgd"}


def test_the_steps_temporaries_are_within_a_thousandth_of_its_peak(runs):
    """foreach: a copy of a group's second moments; Adafactor: fp32 copies of a tensor, less its row and column sums."""
    for row, job, items in runs:
        step = step_temporaries(optimizer.items(items), optimizer.of_job(job))
        peak, split = row["phase_peaks"]["optimizer"], row["phase_peak_breakdowns"]["optimizer"]
        resident = sum(split.get(part, 0) for part in ("params", "buffers", "grads", "optimizer"))
        assert resident + step.size == pytest.approx(peak, rel=1e-3), row["point"]
