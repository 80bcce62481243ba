"""Attention kernels on the tape, by what each has alive in its backward pass; no size is a multiple of another."""

from __future__ import annotations

import pytest

from gpulint.estimator.layers.attention.heads import Heads
from gpulint.estimator.layers.attention.kernels import efficient, flash, softcapped
from gpulint.estimator.tape.ledger import END
from gpulint.estimator.tape.ops import leaf, scale
from gpulint.estimator.tape.tape import Tape
from gpulint.estimator.tape.tensor import Parameter

BATCH, HEADS, KEYS, WIDTH = 5, 6, 3, 40


def backward_peak(kernel, length: int, kv_heads: int = KEYS) -> int:
    """The most bytes alive in the kernel's backward pass beside q, k, v, the output and the gradients of the four."""
    at = Heads(BATCH, length, HEADS, kv_heads, WIDTH, WIDTH)
    tape = Tape()
    tape.enter(0)
    queries, keys = (BATCH * heads * length * WIDTH for heads in (HEADS, kv_heads))
    q, k, v = (scale(leaf(tape, Parameter(size, 2, True))) for size in (queries, keys, keys))
    y = kernel(q, k, v, at)
    del q, k, v
    tape.backward(y, tape.new(y.n, y.e))
    del y
    tape.enter(END, backward=True)
    peak = max(event.live for event in tape.events if event.backward and event.gradients == 0)
    return peak - 2 * (2 * 2 * queries + 2 * 2 * keys)


@pytest.mark.parametrize(("length", "padded"), [(127, 128), (128, 128), (129, 256), (130, 256), (257, 384)])
def test_rows_of_the_flash_kernel_s_backward_are_padded_to_128(length, padded):
    """log-sum-exp and seeds; softmax_d and dq_accum of padded rows, of 64 features for 40; dK and dV of all heads."""
    rows, queries = BATCH * HEADS, BATCH * HEADS * length * WIDTH
    kept = 4 * rows * length + 24
    assert backward_peak(flash, length) == kept + 4 * rows * padded * (1 + 64) + 2 * 2 * queries
    assert backward_peak(flash, length, HEADS) == kept + 4 * rows * padded * (1 + 64)


def test_rows_of_the_efficient_kernel_are_padded_in_the_statistics_alone():
    rows = BATCH * HEADS
    found = backward_peak(lambda q, k, v, at: efficient(q, k, v, None, at), 130, HEADS)
    assert found == 4 * rows * 160 + 4 * rows * 130 * (1 + WIDTH)


def test_soft_capped_scores_have_two_matrices_kept_and_two_in_backward():
    """In 16 bits: scores before the cap and probabilities, then the gradients of both; two numbers a row; queries, keys
    and values repeated for six heads, and the gradients of the repeated keys and values. q, k and v are not kept, and
    their gradients are not there yet.
    """
    length = 1009
    rows, queries, keys = BATCH * HEADS * length, *(BATCH * heads * length * WIDTH for heads in (HEADS, KEYS))
    apart = 2 * 4 * rows + 2 * 3 * queries + 2 * 2 * queries - 2 * (2 * queries + 4 * keys)
    assert backward_peak(softcapped, length) == 4 * 2 * rows * length + apart
