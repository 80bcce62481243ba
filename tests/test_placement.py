"""Ranks without a GPU: no job with more of them than there are is said to fit, and the word for it is one."""

from __future__ import annotations

import pytest

from gpulint.job.origin import Origin
from gpulint.job.placement import unplaced
from gpulint.launchers.reading import open_config
from gpulint.run.check import check
from gpulint.run.estimated import estimated
from gpulint.settings.settings import Settings

SERVE = "vllm serve Qwen/Qwen2.5-0.5B --max-model-len 2048 --tensor-parallel-size 2 --pipeline-parallel-size 3\n"
TRAIN = (
    "torchrun --nproc_per_node 6 pretrain_gpt.py --num-layers 12 --hidden-size 1024 --num-attention-heads 16 --bf16 "
    "--micro-batch-size 1 --seq-length 1024 --max-position-embeddings 1024 --tensor-model-parallel-size 2\n"
)


def said(project, text, **options):
    """The verdict of the estimate, why the job does not start, and the verdict and the errors of `check`."""
    path = str(project({"run.sh": text}) / "run.sh")
    settings = Settings(gpu="h100-80gb", **options)
    found = estimated(open_config(path, settings))
    report = check([path], settings)
    assert [job for file in report.files for job in file.jobs] == [found.result]
    errors = {item.rule for item in report.findings if item.severity == "error"}
    return found.estimate.verdict, found.estimate.stops, found.result.verdict, errors


@pytest.mark.parametrize(("gpus", "rule"), [(5, {"GPU321"}), (6, set()), (7, set()), (None, set())])
def test_degrees_against_the_gpus_that_are_given(project, gpus, rule):
    verdict, stops, result, errors = said(project, SERVE, gpus=gpus)
    assert errors == rule
    if rule:
        assert stops == "tensor parallel 2 x pipeline parallel 3 needs 6 GPUs, but the job has 5"
        assert (verdict, result) == ("exceeds", "refuses")
    else:
        assert (verdict, stops, result) == ("fits", None, "fits")


@pytest.mark.parametrize("text", [SERVE, TRAIN], ids=["serve", "train"])
@pytest.mark.parametrize(
    ("head", "rule"),
    [
        ("#SBATCH --gpus-per-node=5", {"GPU701"}),
        ("#SBATCH --gpus-per-node=6", set()),
        ("export CUDA_VISIBLE_DEVICES=0,1,2,3,4", {"GPU704"}),
        ("export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5", set()),
    ],
)
def test_ranks_against_the_gpus_that_the_launcher_gives(project, text, head, rule):
    verdict, stops, result, errors = said(project, f"#!/bin/bash\n{head}\n{text}")
    assert errors == rule
    assert (verdict == "exceeds", bool(stops), result == "refuses") == (bool(rule),) * 3


def test_processes_that_are_given_to_gpulint_move_only_the_memory(project):
    """Six are started and asked for; on two that the command line says, the replica of two has a place."""
    assert said(project, f"#SBATCH --gpus-per-node=6\n{TRAIN}", gpus=2)[1] is None
    assert said(project, f"#SBATCH --gpus-per-node=6\n{TRAIN}", gpus=1)[1].startswith("tensor parallel 2 x pipeline")


def test_what_nobody_states_is_no_shortage(project):
    opened = open_config(str(project({"run.sh": SERVE}) / "run.sh"), Settings(gpu="h100-80gb", gpus=5))
    job = opened.reading.job
    assert unplaced(job)
    job.origins["hardware.gpus"] = Origin("assumed", "nothing states a count")
    assert not unplaced(job)


def test_an_unknown_degree_counts_as_the_least_that_it_may_be(project):
    text = SERVE.replace("--tensor-parallel-size 2", "--tensor-parallel-size $TP")
    opened = open_config(str(project({"run.sh": text}) / "run.sh"), Settings(gpu="h100-80gb", gpus=2))
    assert unplaced(opened.reading.job) == "tensor parallel 1 x pipeline parallel 3 needs 3 GPUs, but the job has 2"
