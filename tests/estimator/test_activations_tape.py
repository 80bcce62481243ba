"""The tape: storages die with their last reference, backward runs in torch's order and adds gradients as torch does."""

from __future__ import annotations

import gc

import pytest

from gpulint.estimator.tape.indexing import gather
from gpulint.estimator.tape.ledger import END
from gpulint.estimator.tape.matmuls import linear
from gpulint.estimator.tape.ops import (
    add,
    add_to,
    dropout,
    leaf,
    mul,
    scale,
    to,
    unary,
)
from gpulint.estimator.tape.rows import softmax
from gpulint.estimator.tape.tape import Tape
from gpulint.estimator.tape.tensor import FOREIGN, Parameter, Tensor


def finished(tape: Tape, y) -> Tape:
    """Run backward with a gradient of y's size."""
    tape.backward(y, tape.new(y.n, y.e))
    tape.enter(END, backward=True)
    return tape


def weight(n=100, e=2, trainable=True):
    return Parameter(n, e, trainable)


def test_a_storage_lives_as_long_as_it_is_referred_to():
    tape = Tape()
    x = tape.new(10, 4)
    y = tape.new(5, 2)
    assert tape.live == 50
    del x
    assert tape.live == 10
    del y
    assert tape.live == 0


def test_what_nobody_differentiates_is_not_saved():
    tape = Tape()
    tape.enter(0)
    x = tape.new(100, 2)
    y = unary(x)
    assert y.node is None
    del x
    assert tape.live == 200


def test_a_linear_layer_saves_its_input_for_a_trained_weight_only():
    for trainable, kept in ((True, 20), (False, 0)):
        tape = Tape()
        tape.enter(0)
        x = unary(linear(tape.new(10, 2), weight(), 1), save_input=False)
        y = linear(x, weight(100, 2, trainable), 1)
        before = tape.live
        del x
        assert before - tape.live == 20 - kept
        del y


def test_softmax_saves_its_result_and_in_old_torch_its_input():
    for old, held in ((False, 80), (True, 120)):
        tape = Tape()
        tape.inputs_of_softmax = old
        tape.enter(0)
        y = softmax(linear(tape.new(10, 4), weight(100, 4), 1), 4)
        assert tape.live == held, "the product's input and the result"
        del y


def test_nothing_is_left_after_backward():
    tape = Tape()
    tape.enter(0)
    first, second = weight(), weight()
    x = tape.new(10, 2)
    h = dropout(unary(linear(x, first, 1)), 0.1)
    y = linear(mul(h, add(h, to(to(h, 4), 2))), second, 1)
    del x, h
    tape.backward(y, tape.new(y.n, y.e))
    del y
    tape.enter(END, backward=True)
    assert tape.live == 0
    assert tape.gradients == 200


def test_no_reference_cycle_waits_for_the_collector():
    gc.collect()
    gc.disable()
    try:
        tape = Tape()
        tape.enter(0)
        x = unary(linear(tape.new(10, 2), weight(), 1))
        y = tape.checkpoint(lambda z: unary(linear(z, weight(), 1)), x, "full")
        del x
        tape.backward(y, tape.new(y.n, y.e))
        del y
        assert tape.live == 0
    finally:
        gc.enable()


def backward_peak(branches) -> int:
    """The most bytes alive in the backward pass of a sum, whose own 20 bytes are held to the end."""
    tape = Tape()
    tape.enter(0)
    older = scale(leaf(tape, weight(10)))
    x = scale(leaf(tape, weight(10)))
    total = branches(x, older)
    del x, older
    finished(tape, total)
    return max(event.live for event in tape.events if event.backward and event.gradients == 0)


def test_a_second_gradient_is_added_in_place():
    """The sum, its gradient, and one gradient of each branch: nothing for the total of the two."""
    assert backward_peak(lambda x, _: add(scale(x), scale(x))) == 80


def test_a_gradient_that_others_hold_is_added_out_of_place():
    """x and the older summand get the same gradient; while the older one waits, x's second is not added into it."""

    def branches(x, older):
        other = scale(x)
        return add(add(x, older), other)

    assert backward_peak(branches) == 80
    assert backward_peak(lambda x, _: add(x, scale(x))) == 60


def test_leaves_are_served_at_once():
    """A weight's gradient leaves the tape before the next backward function runs."""
    tape = Tape()
    tape.enter(0)
    y = tape.new(10, 2)
    for _ in range(4):
        y = linear(y, weight(), 1)
    finished(tape, y)
    assert [event.gradients for event in tape.events if event.backward] == [0, 100, 200, 300, 400]


def test_accumulated_gradients_exist_from_the_start():
    tape = Tape()
    tape.accumulated = True
    tape.enter(0)
    finished(tape, linear(tape.new(10, 2), weight(), 1))
    assert tape.gradients == 0


def test_autocast_copies_a_float32_weight_once():
    tape = Tape()
    tape.autocast = 2
    tape.enter(0)
    master = weight(100, 4)
    first, second = tape.cast(master, 2), tape.cast(master, 2)
    assert first is second
    assert tape.live == 200
    tape.clear_casts()
    del first, second
    assert tape.live == 0


def test_autocast_does_not_keep_copies_of_frozen_weights():
    tape = Tape()
    tape.autocast = 2
    tape.enter(0)
    assert tape.cast(weight(100, 4, False), 2) is not tape.cast(weight(100, 4, False), 2)
    assert tape.live == 0
    same = weight(100, 2)
    assert tape.cast(same, 2) is same


def checkpointed(mode="full", reentrant=False):
    tape = Tape()
    tape.enter(0)
    parameters = [weight(), weight()]
    x = unary(linear(tape.new(10, 2), weight(), 1), save_input=False)

    def layer(z):
        h = unary(linear(z, parameters[0], 1))
        return unary(linear(h, parameters[1], 1), save_input=False)

    y = tape.checkpoint(layer, x, mode, reentrant)
    del x
    return tape, y


def test_a_checkpoint_keeps_its_input_alone():
    tape, y = checkpointed()
    assert tape.live == 20 + 20 + 20
    del y


def test_a_checkpoint_runs_its_layer_again():
    tape, y = checkpointed()
    held = tape.live
    finished(tape, y)
    assert tape.gradients == 300
    assert max(event.live for event in tape.events if event.backward) > held + 20


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: linear(x, weight(100, 2, True), 1),
        lambda x: mul(x, weight(10, 2, True)),
        lambda x: gather(x, 10, Tensor(x.storage.tape.nothing, 10, 8)),
    ],
)
def test_a_recomputation_stops_before_the_output_of_what_saves_its_inputs_last(operation):
    made = []

    def layer(x):
        tape, before = x.storage.tape, x.storage.tape.live
        y = operation(x)
        made.append(tape.live - before)
        return y

    for reentrant in (False, True):
        made.clear()
        tape = Tape()
        tape.enter(0)
        x = linear(tape.new(10, 2), weight(), 1)
        finished(tape, tape.checkpoint(layer, x, "full", reentrant))
        assert made == [20, 20 if reentrant else 0]


def test_a_reentrant_checkpoint_keeps_the_output_it_makes_again():
    peaks = []
    for reentrant in (False, True):
        tape, y = checkpointed(reentrant=reentrant)
        finished(tape, y)
        peaks.append(max(event.live for event in tape.events if event.backward))
    assert peaks[1] >= peaks[0]


def test_an_offloaded_input_is_away_in_the_forward_pass():
    tape, y = checkpointed("offload")
    assert tape.live == 20 + 20
    finished(tape, y)
    assert tape.gradients == 300


def test_in_place_addition_takes_no_bytes():
    tape = Tape()
    tape.enter(0)
    a, b = tape.new(10, 2), tape.new(10, 2)
    c = add_to(a, b)
    assert tape.live == 40
    del a, b
    assert tape.live == 20
    del c


def test_bytes_inside_a_kernel_count_for_the_peak_only():
    tape = Tape()
    tape.enter(0)
    tape.scratch(1000)
    tape.enter(END)
    assert tape.live == 0
    assert tape.events[0].live == 1000


def test_weights_of_the_other_16_bit_type_are_copied_and_the_copies_saved():
    tape = Tape()
    tape.enter(0)
    tape.autocast = 2
    assert FOREIGN != 2
    frozen = weight(100, FOREIGN, trainable=False)
    x = unary(linear(tape.new(10, 2), weight(100, 2), 1), save_input=False)
    before = tape.live
    y = linear(x, frozen, 1)
    assert (y.e, tape.live - before) == (2, 20 + 200)
    assert frozen.cast is None
    assert tape.cast(frozen, 2) is not tape.cast(frozen, 2)


def test_both_16_bit_types_together_are_float32():
    tape = Tape()
    half, other = tape.new(10, 2), tape.new(10, FOREIGN)
    assert (add(half, other).e, mul(other, half).e, add(other, other).e, add(half, half).e) == (4, 4, FOREIGN, 2)
    assert to(other, 2) is not other
    assert to(other, FOREIGN) is other
