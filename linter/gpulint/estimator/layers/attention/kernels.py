"""Attention kernels: what each saves, and what it allocates forward and backward.

b sequences of s tokens, nh query heads of dimension d, e bytes per element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tape.backward import made
from ...tape.indexing import cat, expand, maximum, pad, repeat, window
from ...tape.labels import labelled
from ...tape.matmuls import matmul
from ...tape.ops import (
    add,
    bounded,
    contiguous,
    copied,
    dropout,
    leaf,
    scale,
    scaled_in_place,
    sub,
    to,
    unary,
)
from ...tape.rows import softmax
from ...tape.tape import tape_of
from ...tape.tensor import Tensor

if TYPE_CHECKING:
    from ...tape.tape import Tape
    from .heads import Heads

PART = "attention kernel"


def up_to(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


def attend(implementation: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Heads) -> Tensor:
    """The kernel that an attention implementation leads to, and its output as [b, s, nh, d].

    `sdpa` is torch's choice on CUDA (sdp_utils.cpp): flash for 16-bit operands without a mask and heads of one
    dimension up to 256, else the memory-efficient kernel where keys need no repeating, else the composite one; GPUs
    before Ampere have no flash, and none of bfloat16 but the composite one (`at.sdpa`). With a
    mask Transformers repeats the keys first (integrations/sdpa_attention.py `use_gqa_in_sdpa`).
    """
    tape = tape_of(q)
    if implementation == "eager":
        return eager(q, k, v, mask, at)
    grouped = at.heads != at.kv_heads
    same = at.head_dim == at.value_dim
    if implementation == "sdpa":
        if at.laid_out and not at.direct:
            if grouped:
                k, v, grouped = repeated(k, at), repeated(v, at), False
            q, k, v = laid_out(q), laid_out(k), laid_out(v)
        if grouped and not at.direct and (not at.grouped or mask is not None or not same or at.head_dim > 256):
            k, v, grouped = repeated(k, at), repeated(v, at), False
        if tape.autocast:
            q, k, v = to(q, tape.autocast), to(k, tape.autocast), to(v, tape.autocast)
        best = at.sdpa if q.e == 2 else "efficient"
        if best == "flash" and mask is None and same and at.head_dim <= 256:
            return token_major(flash(q, k, v, at), q)
        align = 8 if q.e == 2 else 4
        fits = not grouped and at.head_dim % align == 0 and at.value_dim % align == 0
        if fits and best in ("flash", "efficient"):
            return efficient(q, k, v, mask, at)
        y = math(q, k, v, mask, at)
        return copied(y) if at.batch > 1 else contiguous(y)
    return outside(implementation, q, k, v, at)


def outside(implementation: str, q: Tensor, k: Tensor, v: Tensor, at: Heads) -> Tensor:
    """The kernels of flash-attn and xformers, which need no tensor for a causal mask.

    xformers has one like torch's memory-efficient kernel for GPUs before Ampere. Some classes repeat the keys first
    (`at.repeats`). Unsloth compiles soft-capped scores.
    """
    if implementation == "softcapped":
        return softcapped(q, k, v, at)
    same = at.head_dim == at.value_dim
    if at.heads != at.kv_heads and at.repeats:
        k, v = repeated(k, at), repeated(v, at)
        at = at._replace(kv_heads=at.heads)
    q, k, v = to(q, 2), to(k, 2), to(v, 2)
    if implementation == "xformers" and at.sdpa == "efficient":
        return efficient(q, k, v, None, at)
    if not same:
        v = pad(v, q.n)
    y = token_major(flash(q, k, v, at), q)
    if at.sequence_first and at.batch > 1:
        y = contiguous(y)
    return y if same else window(y, _values(q, at))


def laid_out(x: Tensor) -> Tensor:
    """`x.contiguous()` of heads that lie as [b, s, heads, d]."""
    if x.heads_first:
        return x
    y = contiguous(x)
    y.heads_first = True
    return y


def token_major(y: Tensor, q: Tensor) -> Tensor:
    """The flash kernel's output lies in memory as q does; what follows wants whole tokens."""
    return contiguous(y) if q.heads_first else y


def spread(x: Tensor, n: int, at: Heads) -> Tensor:
    """One key head broadcast by matmul: a view, laid out for every sequence where there are several."""
    if x.n == n:
        return x
    y = expand(x, n)
    return contiguous(y) if at.batch > 1 else y


def repeated(x: Tensor, at: Heads) -> Tensor:
    """`repeat_kv` of transformers: a copy, but of a single key head a view."""
    n = x.n // at.kv_heads * at.heads
    return expand(x, n) if at.kv_heads == 1 else repeat(x, n)


def _values(q: Tensor, at: Heads) -> int:
    return q.n // at.head_dim * at.value_dim


@labelled("output and statistics")
def flash(q: Tensor, k: Tensor, v: Tensor, at: Heads) -> Tensor:
    """Saves q, k, v, the output and a float32 log-sum-exp; grouped keys are not repeated.

    Backward makes the three gradients and inside the kernel softmax_d 4 b nh s128, dq_accum 4 b s128 nh d32 and, for
    grouped queries, dK and dV for all query heads (aten flash_attn/flash_api.cpp `mha_bwd`).
    """
    tape, e, n, kn, vn = tape_of(q), q.e, q.n, k.n, v.n
    y = tape.kernel_output(v.n if at.kv_heads == at.heads and not at.keys else n, e)
    lse = tape.kernel_output(at.batch * at.heads * at.length, 4)
    seeds = tape.new(3, 8)
    padded = up_to(at.length, 128)
    width = up_to(at.head_dim, 32) if at.head_dim <= 192 else 256
    rows = 4 * at.batch * at.heads * padded
    expanded = e * n if at.kv_heads != at.heads else 0
    kept = (q.storage, k.storage, v.storage, y.storage, lse, seeds)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, Tensor, Tensor]:
        result = tape.new(n, e), tape.new(kn, e), tape.new(vn, e)
        tape.scratch(rows, rows * width, expanded, expanded)
        return result

    return made(y, tape.node((q, k, v), back))


@labelled("output and statistics")
def efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Heads) -> Tensor:
    """The memory-efficient kernel: saves q, k, v, output, log-sum-exp over s32, and a float mask made for this call.

    The mask has b s s8 elements of q's width. Inside backward: delta 4 b nh s and a float32 accumulator of dQ
    (aten mem_eff_attention/kernel_backward.h).
    """
    tape, e, n, kn, vn = tape_of(q), q.e, q.n, k.n, v.n
    bias = _float_mask(tape, mask, e, at)
    y = tape.kernel_output(_values(q, at), e)
    lse = tape.kernel_output(at.batch * at.heads * up_to(at.length, 32), 4)
    rows = 4 * at.batch * at.heads * at.length
    kept = (q.storage, k.storage, v.storage, y.storage, lse, bias)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, Tensor, Tensor]:
        result = tape.new(n, e), tape.new(kn, e), tape.new(vn, e)
        tape.scratch(rows, rows * at.head_dim)
        return result

    return made(y, tape.node((q, k, v), back))


def _float_mask(tape: Tape, mask: Tensor | None, e: int, at: Heads) -> Tensor | None:
    if mask is None:
        return None
    keys = at.keys or at.length
    bias = to(mask, e) if mask.e > 1 else tape.new(at.batch * at.length * keys, e)
    return tape.new(bias.n // keys * up_to(keys, 8), e) if keys % 8 else bias


@labelled("causal mask")
def math(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Heads) -> Tensor:
    """torch's composite attention: scaled copies of q and k, keys repeated, score matrices in full.

    Saved: q, k, v and the probabilities; `_safe_softmax` needs a mask of one byte per score for a moment
    (aten native/transformers/attention.cpp `_scaled_dot_product_attention_math`). Before torch 2.5 operands stayed in
    16 bits and the softmax was the plain one, half as much in all (pytorch/pytorch#139612; `at.sdpa` "narrow math").
    """
    tape, e = tape_of(q), q.e
    size = _values(q, at)
    narrow = e == 2 and at.sdpa == "narrow math"
    wide = 2 if narrow else 4
    q, k, v = to(q, wide), to(k, wide), to(v, wide)
    scaled = scale(q)
    causal = None if mask is not None else tape.new(at.length * at.length, 1)
    bias = tape.new(at.length * at.length, wide) if mask is None else _float_mask(tape, mask, e, at)
    del causal
    if at.heads != at.kv_heads and not at.direct:
        k, v = repeat(k, q.n), repeat(v, size)
    scaled = contiguous(scaled) if at.batch > 1 else scaled
    scores = matmul(scaled, spread(scale(k), q.n, at), at.scores, kept_by_policy=True)
    scores = add(scores, bias) if bias is not None else scores
    tape.scratch(0 if narrow else at.scores * 5)
    scores = softmax(scores, wide, fused=True)
    scores = dropout(scores, at.dropout)
    returned = to(scores, e)
    y = to(matmul(scores, spread(v, size, at), size, kept_by_policy=True), e)
    del returned
    return y


def softcapped(q: Tensor, k: Tensor, v: Tensor, at: Heads) -> Tensor:
    """Soft-capped scores in one graph of torch.compile (unsloth 2024.8 kernels/flex_attention.py).

    Saved, as the partitioner has it (compiled.py): the operands of both products, which are scaled queries, keys and
    values repeated for every query head and the probabilities, the scores before the cap, and two numbers a row.
    Backward makes the gradients of probabilities and scores, and those of keys and values for every query head first.
    """
    tape, e, n, kn, vn = tape_of(q), q.e, q.n, k.n, v.n
    whole, rows = _values(q, at), at.batch * at.heads * at.length
    kept = [tape.new(size, e).storage for size in (n, n, whole, at.scores, at.scores)]
    kept.append(tape.new(2 * rows, 4).storage)
    product = tape.new(whole, e)
    y = tape.new(whole, e)
    del product

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, Tensor, Tensor]:
        tape.scratch(e * at.scores, e * at.scores, e * n, e * whole)
        return tape.new(n, e), tape.new(kn, e), tape.new(vn, e)

    return made(y, tape.node((q, k, v), back))


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Heads) -> Tensor:
    """`eager_attention_forward` of transformers: repeated keys, score matrices, softmax in float32 and back.

    gpt-oss joins a sink logit per head to the scores, subtracts the maximum and drops the sink's share; so does MiMo,
    under one name (`shifted`). GPT-J multiplies float32 copies; MPT adds a float32 bias per head and key; BLOOM adds
    its bias within the matmul; Falcon scales in place, keeps the scores' own width and has a name for the unmasked ones
    until the softmax is there.
    """
    if at.kind == "slopes":
        return sloped(q, k, v, mask, at)
    tape = tape_of(q)
    grouped = at.heads != at.kv_heads
    if grouped:
        keys, values = repeated(k, at), repeated(v, at)
    else:
        keys, values = k, v
    moved = at.batch > 1
    laid = grouped and at.kv_heads > 1
    joined = None
    if at.kind == "upcast":
        q, keys = to(q, 4), to(keys, 4)
    if at.kind == "alibi" and moved:
        q = contiguous(q)
    weights = heads_product(q, keys, at.scores, moved and at.kind != "alibi", moved and not laid)
    if at.kind not in ("alibi", "falcon"):
        weights = scale(weights)
    if at.kind == "biased":
        weights = add(weights, tape.new(at.heads * at.length, 4))
    if at.softcap:
        weights = scale(weights)
        weights = unary(weights, save_input=False, save_output=True)
        weights = scale(weights)
    first = weights if at.kind in ("alibi", "falcon") else None
    if mask is not None:
        weights = add(weights, mask)
        weights = bounded(weights) if at.bounded else weights
    if at.sinks is not None:
        rows = at.batch * at.heads * at.length
        joined = cat((weights, expand(leaf(tape, at.sinks), rows)))
        if at.kind == "shifted":
            weights = Tensor(tape.nothing, 0, q.e)
        joined = sub(joined, maximum(joined, rows))
        weights = window(softmax(joined, joined.e, fused=True), at.scores)
    else:
        if at.kind == "shifted":
            weights = sub(weights, maximum(weights, at.batch * at.heads * at.length))
        weights = probabilities(weights, q.e, at)
        first = first if at.kind == "alibi" else None
        weights = to(weights, v.e) if at.kind in ("native", "upcast") else weights
    weights = dropout(weights, at.dropout)
    tape.returned = weights.storage
    y = heads_product(weights, values, _values(q, at), False, moved and not laid)
    y = copied(y) if moved else contiguous(y)
    del joined, first
    return y


def sloped(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, at: Heads) -> Tensor:
    """Falcon with ALiBi: products, float32 scores and their sum with the slopes, scaled in place, named to the end.

    The softmax is in the width of the layer's input, float32 under autocast (transformers 5.23 modeling_falcon.py
    FalconAttention.forward).
    """
    tape, moved = tape_of(q), at.batch > 1
    products = heads_product(q, k, at.scores, moved, moved)
    scores = to(products, 4)
    logits = scaled_in_place(add(scores, tape.new(at.batch * at.heads * at.length, q.e)))
    masked = logits if mask is None else add(logits, mask)
    weights = dropout(softmax(masked, 4 if tape.autocast else q.e), at.dropout)
    del masked
    tape.returned = weights.storage
    y = heads_product(weights, v, _values(q, at), False, moved)
    y = copied(y) if moved else contiguous(y)
    del products, scores, logits
    return y


def probabilities(scores: Tensor, e: int, at: Heads) -> Tensor:
    """softmax of the scores by kind, in their own width or in that of queries (`e`)."""
    narrow = (tape_of(scores).autocast and 4) or scores.e
    if at.kind in ("falcon", "shifted"):
        return softmax(scores, scores.e, fused=True)
    if at.kind in ("plain", "native", "upcast"):
        return softmax(scores, narrow)
    return to(softmax(scores, 4, fused=at.fp16), e)


def heads_product(a: Tensor, b: Tensor, n: int, copy_a: bool, copy_b: bool) -> Tensor:
    """torch.matmul of 4-D tensors in autocast's width; operands with transposed heads are laid out anew.

    With one sequence the heads can be folded into a batch of matrices without a copy.
    """
    e = tape_of(a).autocast
    if e:
        wide = to(b, e)
        narrow = to(a, e)
        return matmul(contiguous(narrow) if copy_a else narrow, contiguous(wide) if copy_b else wide, n)
    return matmul(contiguous(a) if copy_a else a, contiguous(b) if copy_b else b, n)
