"""What a checkpoint's files hold twice."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.models.stored import HEADS_STORED, as_loaded

STORED = {"Qwen/Qwen3-0.6B": 751_632_384, "Qwen/Qwen3-1.7B": 2_031_739_904}


@pytest.mark.parametrize(("name", "elements"), STORED.items())
def test_a_head_that_is_stored_is_a_parameter_of_its_own(name: str, elements: int) -> None:
    """The hub's count of the files is that of the model with both."""
    assert as_loaded(resolve(name), "5.2.0").parameters == elements


def test_every_listed_checkpoint_is_tied() -> None:
    assert all(resolve(name).shape.tied for name in HEADS_STORED)
    assert {name.lower() for name in STORED} == HEADS_STORED
    assert as_loaded(resolve("qwen/qwen3-0.6b"), "5.2.0").parameters == STORED["Qwen/Qwen3-0.6B"]


@pytest.mark.parametrize("release", [None, "4.57.6", "5.4.0", "5.23.0"])
def test_other_releases_tie_it(release: str | None) -> None:
    model = resolve("Qwen/Qwen3-0.6B")
    assert as_loaded(model, release) is model


def test_a_checkpoint_that_stores_it_once_stays_tied() -> None:
    model = resolve("Qwen/Qwen3-4B")
    assert as_loaded(model, "5.2.0") is model


def weights(**fields: object) -> int:
    """What the weights take at the peak, in bytes."""
    return estimate(Job.validate({"model": "Qwen/Qwen3-0.6B", "weights": {"dtype": "bfloat16"}, **fields})).components[
        "weights"
    ]


TRAINING: dict[str, object] = {
    "micro_batch_size": 1, "sequence_length": 128, "optimizer": {"name": "adamw_torch"}
}  # fmt: skip
HEAD = 2 * 151_936 * 1_024


def test_training_holds_the_head_apart() -> None:
    apart = weights(**TRAINING, versions={"transformers": "5.2.0"})
    assert apart - weights(**TRAINING) == HEAD


def test_code_of_its_own_ties_as_before() -> None:
    litgpt = {**TRAINING, "framework": "litgpt"}
    assert weights(**litgpt, versions={"transformers": "5.2.0"}) == weights(**litgpt)
