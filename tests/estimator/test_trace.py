"""The requests of a micro step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpulint.estimator.activations import replay
from gpulint.estimator.allocator.trace import Recorder, Trace, trace
from gpulint.estimator.forward.network import network
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

MODELS = ("gpt2-xl", "meta-llama/Llama-2-7b-hf", "google/gemma-2-9b")


def job_of(model: str, checkpointing: str = "none") -> Job:
    return Job.validate(
        {
            "model": model,
            "weights": {"dtype": "bfloat16"},
            "micro_batch_size": 2,
            "sequence_length": 512,
            "activation_checkpointing": checkpointing,
        }
    )


def alive_at_requests(events: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The bytes alive once each request is served."""
    alive, found = 0, []
    for event in events:
        alive += sizes[event] if event >= 0 else -sizes[~event]
        found += [alive] * (event >= 0)
    return found


def peak(found: Trace) -> int:
    """The most bytes alive at once; gradients leave where they are handed over."""
    alive = most = 0
    for event in found.events:
        alive += found.sizes[event] if event >= 0 else -found.sizes[~event]
        most = max(most, alive)
    assert alive == 0
    return most


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("model", MODELS)
def test_every_request_is_freed_once(model, checkpointing):
    found = trace(job_of(model, checkpointing), resolve(model))
    requested = [event for event in found.events if event >= 0]
    freed = [~event for event in found.events if event < 0]
    assert sorted(requested) == sorted(freed) == list(range(len(found.sizes)))
    place = {event: index for index, event in enumerate(found.events)}
    assert all(place[number] < place[~number] for number in requested)


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_layers_put_in_place_hold_what_layers_that_are_run_hold(checkpointing):
    """Of equal layers all are run on the tape. What is alive at each of its requests is compared with the unfolded
    trace, not the peak alone: what is freed layers too late need not raise it.
    """
    model = resolve("gpt2-xl")
    job = job_of("gpt2-xl", checkpointing)
    whole = network(job, model)
    assert len(whole.kinds()[0]) < whole.layers
    tape = Recorder()
    replay(whole, list(range(whole.layers)), tape)
    found = trace(job, model)
    large = [event for _, events in tape.runs for event in events if tape.sizes[max(event, ~event)] > 1 << 20]
    assert alive_at_requests(found.events, found.sizes) == alive_at_requests(large, tape.sizes)
    assert len(found.gradients) == sum(1 for number in tape.handed if tape.sizes[number] > 1 << 20)


def test_inputs_that_stay_are_freed_last():
    model = resolve("meta-llama/Llama-2-7b-hf")
    job = job_of("meta-llama/Llama-2-7b-hf", "full")
    usual, staying = trace(job, model), trace(job, model, inputs_stay=True)
    hidden = 2 * 512 * 4096 * 2
    assert peak(staying) >= peak(usual)
    assert peak(staying) >= 2 * (model.shape.layers - 1) * hidden


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_stage_without_a_head_asks_for_nothing_of_a_loss(checkpointing):
    model = resolve(MODELS[0])
    job = job_of(MODELS[0], checkpointing)
    whole, stage = trace(job, model), trace(job, model, head=False)
    logits = 2 * 512 * 50257 * 4
    assert logits in {whole.sizes[event] for event in whole.events if event >= 0}
    assert logits not in {stage.sizes[event] for event in stage.events if event >= 0}
    assert len(stage.passes) == len(whole.passes)
    assert peak(stage) < peak(whole)
