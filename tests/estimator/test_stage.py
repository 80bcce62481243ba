"""One pipeline stage as a model."""

from __future__ import annotations

from gpulint.estimator.stage import last_stage
from gpulint.job import Hardware, Job, Parallelism


def test_without_pipelining_nothing_changes(llama_8b):
    job = Job()
    assert last_stage(job, llama_8b) == (job, llama_8b)


def test_the_last_stage_has_its_layers_numbered_from_zero(decoder):
    model = decoder(layers=10, experts=4)
    plan = Parallelism(pipeline=4, tensor=2)
    job, stage = last_stage(Job(parallelism=plan, hardware=Hardware(gpus=16)), model)
    assert stage.shape.layers == 3
    assert stage.shape.sparse_layers == (0, 1, 2)
    assert len(stage.shape.windows) == 3
    assert {tensor.layers for tensor in stage.tensors} == {None, (0, 1, 2)}
    assert (job.parallelism.pipeline, job.parallelism.tensor, job.data_parallel) == (1, 2, 2)
