"""Masks for all positions that classes of older releases kept."""

from __future__ import annotations

import pytest

from gpulint.estimator.serving.generation.causal_masks import causal_masks
from gpulint.estimator.training import estimate_training
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

BIGCODE = {"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": 100}
GPT_J = {"model_type": "gptj", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": 100}


@pytest.mark.parametrize(
    ("config", "version", "masks"),
    [(BIGCODE, "4.57.0", 0), (GPT_J, "4.44.2", 3), (GPT_J, "4.45.0", 0)],
)
def test_one_byte_a_pair_of_positions(config, version, masks):
    """GPTBigCode's own is a buffer of its table."""
    job = Job.validate({"kind": "training", "versions": {"transformers": version}})
    assert causal_masks(job, resolve(config)) == masks * 256**2


def test_another_frameworks_classes_have_none():
    job = Job.validate({"kind": "training", "framework": "litgpt", "versions": {"transformers": "4.40.0"}})
    assert causal_masks(job, resolve(GPT_J)) == 0


def test_they_stand_beside_the_weights_in_training():
    given = {"kind": "training", "micro_batch_size": 1, "sequence_length": 8, "attention": "eager"}
    peaks = []
    for version in ("4.44.2", "4.45.0"):
        job = Job.validate({**given, "versions": {"transformers": version}})
        peaks.append(estimate_training(job, resolve(GPT_J), None).peak.components["buffers"])
    assert peaks[0] - peaks[1] == 3 * 256**2
