"""What waits of a layer's gradient when backward comes to the first saved tensor of a checkpointed layer."""

from __future__ import annotations

from gpulint.estimator.tape.autograd import trailing
from gpulint.estimator.tape.ops import add, scale, to, unary
from gpulint.estimator.tape.tape import Tape

N = 1000


def layer(tape, behind, e=4):
    """The bytes that wait in a layer whose last operation that saves is a pointwise kernel."""
    x = tape.new(N, e)
    tape.source(x)
    tape.recording, tape._tracing = False, True
    return trailing(behind(x, unary(x)))


def test_nothing_waits_where_the_last_operation_saves():
    assert layer(Tape(), lambda _, y: y) == 0


def test_a_residual_passes_on_the_gradient_itself():
    assert layer(Tape(), lambda x, y: add(x, y)) == 0


def test_a_cast_of_the_branch_leaves_the_gradient_in_its_width_too():
    assert layer(Tape(), lambda x, y: add(x, to(y, 2))) == 4 * N


def test_a_scaled_branch_waits_as_a_new_gradient():
    assert layer(Tape(), lambda x, y: add(x, scale(y))) == 4 * N


def test_of_a_chain_the_last_gradient_alone_waits():
    assert layer(Tape(), lambda x, y: add(x, scale(scale(y)))) == 4 * N
