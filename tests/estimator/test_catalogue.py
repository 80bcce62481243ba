"""Every config of the catalogue has an estimate, in training and in serving."""

from __future__ import annotations

from itertools import groupby

import pytest

from gpulint import estimate
from gpulint.job.job import Job
from gpulint.models.catalogue import search

BY_TYPE = {
    kind: sorted({row.key: row.id for row in rows}.values())
    for kind, rows in groupby(sorted(search(""), key=lambda row: row.model_type), key=lambda row: row.model_type)
}


@pytest.mark.parametrize("model_type", BY_TYPE)
def test_a_training_step(model_type):
    for name in BY_TYPE[model_type]:
        found = estimate(Job.validate({"model": name, "micro_batch_size": 1, "sequence_length": 512}))
        assert found.per_gpu.allocated > found.parameters // 2, name


@pytest.mark.parametrize("model_type", BY_TYPE)
def test_a_short_generation(model_type):
    inference = {"engine": "transformers", "batch_size": 1, "prompt_length": 64, "new_tokens": 16}
    for name in BY_TYPE[model_type]:
        found = estimate(Job.validate({"kind": "inference", "model": name, "inference": inference}))
        assert found.per_gpu.allocated > 0, name
