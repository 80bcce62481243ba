"""What older releases of Transformers allocate: random points of their own code, traced tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.estimator.frameworks.release import checkpoints, release
from gpulint.job.job import Job

DATA = json.loads((Path(__file__).parent / "data" / "releases.json").read_text())
WORKSPACE = int(8.125 * (1 << 20))
COMPARED = ("forward", "loss", "backward", "optimizer_step", "prefill", "decode")


def name(row):
    words = [str(value) for value in row["point"].values() if value not in (None, False, True, "train", "all-linear")]
    return "-".join([row["transformers"], row["family"], *words])


@pytest.mark.parametrize("row", DATA["rows"], ids=name)
def test_a_point_takes_what_its_release_allocates(row, oracle_rows):
    job = oracle_rows.job_of({"point": row["point"], "config": DATA["configs"][row["family"]]})
    job.versions.update({"transformers": row["transformers"], "peft": "0.13.2"})
    handles = 2 if job.kind == "training" else 1
    peak = max(phase.allocated for phase in estimate(job).phases if phase.name in COMPARED)
    assert peak - handles * WORKSPACE == pytest.approx(row["peak"], rel=0.004)


def loss_peak(batch: int, length: int) -> int:
    """Bytes where the loss of a model with a large vocabulary is taken."""
    found = estimate(
        Job.validate(
            {
                "model": DATA["configs"]["qwen2"],
                "weights": {"dtype": "bfloat16"},
                "optimizer": {"name": "adamw_torch"},
                "micro_batch_size": batch,
                "sequence_length": length,
                "activation_checkpointing": "full",
                "versions": {"transformers": "4.46.3"},
            }
        )
    )
    return next(phase.allocated for phase in found.phases if phase.name == "loss")


def test_one_sequence_is_shifted_without_a_copy():
    """`logits[..., :-1, :].contiguous()` copies the float32 logits of two sequences, not those of one."""
    vocabulary = DATA["configs"]["qwen2"]["vocab_size"]
    assert loss_peak(2, 1024) - loss_peak(1, 2048) == pytest.approx(4 * 2048 * vocabulary, rel=0.01)


@pytest.mark.parametrize(("version", "upcast"), [("4.48.2", "never"), ("4.48.3", "loss")])
def test_narrow_families_call_the_shared_loss_from_a_patch_release_on(version, upcast):
    assert release(Job(versions={"transformers": version}), "bloom").upcast == upcast


@pytest.mark.parametrize(
    ("version", "checkpointed"),
    [("4.47.1", True), ("4.48.0", False), ("4.51.3", False), ("4.52.4", True), (None, True)],
)
def test_starcoder2_was_not_checkpointed_for_four_releases(version, checkpointed):
    job = Job(versions={"transformers": version} if version else {})
    assert checkpoints(job, "starcoder2") == checkpointed
    assert checkpoints(job, "llama")


@pytest.mark.parametrize(
    "changes",
    [
        {"framework": "litgpt"},
        {"parallelism": {"fsdp": {"version": 2, "sharding": "full_shard", "checkpoints_inside": True}}},
    ],
)
def test_what_checkpoints_from_outside_does_so_in_every_release(changes):
    assert checkpoints(Job.validate({**changes, "versions": {"transformers": "4.50.0"}}), "starcoder2")


def test_an_evaluation_of_smoothed_labels_needs_no_less_where_it_keeps_its_logits():
    given = {
        "model": DATA["configs"]["qwen2"],
        "optimizer": {"name": "adamw_torch"},
        "micro_batch_size": 4,
        "sequence_length": 512,
        "loss": {"kernel": "smoothed"},
    }
    peaks = []
    for keeps in (False, True):
        evaluation = {"micro_batch_size": 4, "accumulation_steps": 1, "keeps_logits": keeps}
        found = estimate(Job.validate({**given, "evaluation": evaluation}))
        peaks.append(max(phase.allocated for phase in found.phases if phase.name == "evaluation"))
    assert peaks[0] <= peaks[1]
