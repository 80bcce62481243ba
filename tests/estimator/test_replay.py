"""The replay against slow paths: every layer written down by itself, every free block looked at for every request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.activations import replay as run
from gpulint.estimator.allocator.allocator import BLOCK, ROUNDING, SMALL_REQUEST, Allocator, segment_size
from gpulint.estimator.allocator.memory_levels import _adds_up
from gpulint.estimator.allocator.trace import Recorder, Unfolding, trace
from gpulint.estimator.forward.network import network
from gpulint.job.job import Job, Parallelism
from gpulint.models.resolve import resolve
from gpulint.units import MIB

LORA = {"method": "lora", "adapter": {"r": 16, "targets": "all-linear"}}
JOBS = [
    ("gpt2-xl", {}),
    ("gpt2-xl", {"activation_checkpointing": "full"}),
    ("google/gemma-2-9b", {"activation_checkpointing": "full", **LORA}),
    ("meta-llama/Llama-2-7b-hf", {"gradient_accumulation_steps": 4, **LORA}),
]


def job_of(model, fields):
    weights = {"dtype": "bfloat16"}
    return Job.validate({"model": model, "weights": weights, "micro_batch_size": 2, "sequence_length": 512, **fields})


class Slow:
    """Segments as lists of [address, size, free], every block of which is looked at for every request."""

    def __init__(self):
        self.segments, self.edge, self.reserved = [], 0, 0

    def take(self, request):
        size = -(-request // BLOCK) * BLOCK
        fits = [
            (block[1], block[0], segment, i)
            for segment in self.segments
            for i, block in enumerate(segment)
            if block[2] and block[1] >= size
        ]
        if not fits:
            whole = segment_size(size)
            self.segments.append([[self.edge, whole, True]])
            fits = [(whole, self.edge, self.segments[-1], 0)]
            self.edge += whole + ROUNDING
            self.reserved += whole
        whole, address, segment, i = min(fits, key=lambda fit: fit[:2])
        if whole - size > SMALL_REQUEST:
            segment[i : i + 1] = [[address, size, False], [address + size, whole - size, True]]
        else:
            segment[i][2] = False
        return segment, address

    def give(self, segment, address):
        next(block for block in segment if block[0] == address)[2] = True
        merged = []
        for block in segment:
            if merged and merged[-1][2] and block[2]:
                merged[-1][1] += block[1]
            else:
                merged.append(block)
        segment[:] = merged


@pytest.mark.parametrize(("model", "fields"), JOBS)
@pytest.mark.parametrize("inputs_stay", [False, True])
def test_repeated_layers_are_what_each_of_them_would_be(model, fields, inputs_stay):
    whole = network(job_of(model, fields), resolve(model))
    kinds, assigned = whole.kinds()
    tape = Recorder()
    run(whole, kinds, tape)
    unfolding = Unfolding(tape, [assigned.count(kind) for kind in range(len(kinds))], inputs_stay)
    numbers, total = [], 0
    for number, size in enumerate(tape.sizes):
        numbers.append(total)
        total += unfolding.counts.get(tape.births[number][0], 1) if size > SMALL_REQUEST else 0
    one_by_one = [
        numbers[event] + instance if event >= 0 else ~(numbers[~event] + instance)
        for place, recorded in tape.runs
        for step in range(unfolding.counts.get(place[0], 1))
        for event, instance in unfolding._step(place, recorded, step, unfolding.counts.get(place[0], 1))
        if tape.sizes[event if event >= 0 else ~event] > SMALL_REQUEST
    ]
    written, _ = unfolding._unfolded(numbers)
    assert written[: len(one_by_one)] == one_by_one
    assert max(unfolding.counts.values()) > 2


@pytest.mark.parametrize(("model", "fields"), JOBS)
def test_a_micro_step_reserves_what_the_slow_path_reserves(model, fields):
    found = trace(job_of(model, fields), resolve(model))
    fast, slow = Allocator(), Slow()
    blocks = {}
    for event in found.events[: len(found.events) // 3]:
        if event >= 0:
            blocks[event] = fast.take(found.sizes[event]), slow.take(found.sizes[event])
        else:
            one, other = blocks.pop(~event)
            fast.give(one)
            slow.give(*other)
        assert fast.reserved == slow.reserved


@given(st.lists(st.tuples(st.booleans(), st.integers(MIB + 1, 64 * MIB)), max_size=60))
def test_any_requests_reserve_what_the_slow_path_reserves(steps):
    fast, slow, alive = Allocator(), Slow(), []
    for take, size in steps:
        if take or not alive:
            alive.append((fast.take(size), slow.take(size)))
        else:
            one, other = alive.pop(size % len(alive))
            fast.give(one)
            slow.give(*other)
        assert fast.reserved == slow.reserved


@pytest.mark.parametrize(
    ("steps", "longest_first", "one_process", "opens"),
    [(2, False, False, True), (1, False, False, False), (3, True, False, False), (3, False, True, False)],
)
def test_a_first_micro_step_is_replayed_where_later_ones_add_to_its_gradients(steps, longest_first, one_process, opens):
    """Not where the longest batch, which is replayed, comes first, nor where replicas are made anew each time."""
    fields = {"gradient_accumulation_steps": steps, "longest_batch_first": longest_first}
    assert _adds_up(Job(parallelism=Parallelism(one_process=one_process), **fields)) == opens
