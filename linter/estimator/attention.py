"""Attention kernels and the projections around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .adapters import project
from .ops import add, cat, mul, scale, to, window
from .tape import Tensor

if TYPE_CHECKING:
    from .setting import Linear, Setting


def up_to(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE: x * cos + rotate_half(x) * sin (transformers modeling_llama.py `apply_rotary_pos_emb`)."""
    return add(mul(x, cos), mul(_turned(x), sin))


def _turned(x: Tensor) -> Tensor:
    first, second = window(x, x.n // 2), window(x, x.n // 2)
    return cat((scale(second), first))


def relayout(x: Tensor) -> Tensor:
    """A view whose gradient comes back in another layout and is copied."""
    tape, n, e = x.storage.tape, x.n, x.e
    y = Tensor(x.storage, n, e, view=True)
    y.node = tape.node((x,), lambda _: (tape.new(n, e),), saves=0)
    return y


def flash(q: Tensor, k: Tensor, v: Tensor, s: Setting) -> Tensor:
    """The flash kernel: saves q, k, v, the output and a float32 log-sum-exp; keys are not repeated.

    Backward allocates the gradients with softmax_d 4 b nh s128, dq_accum 4 b s128 nh d32 and, for grouped queries, dK
    and dV of all query heads (aten flash_attn/flash_api.cpp mha_bwd).
    """
    tape, e, n, kn = q.storage.tape, q.e, q.n, k.n
    y = tape.new(n, e)
    lse = tape.new(s.batch * s.heads * s.length, 4)
    seeds = tape.new(3, 8)
    s128 = up_to(s.length, 128)
    d32 = up_to(s.head_dim, 32) if s.head_dim <= 192 else 256
    hidden = 4 * s.batch * s.heads * s128 * (1 + d32)
    if s.kv_heads != s.heads:
        hidden += 2 * e * n
    kept = (q.storage, k.storage, v.storage, y.storage, lse, seeds)

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor, Tensor, Tensor]:
        result = tape.new(n, e), tape.new(kn, e), tape.new(kn, e)
        tape.scratch(hidden)
        return result

    y.node = tape.node((q, k, v), back)
    return y


def attend(x: Tensor, modules: dict[str, Linear], s: Setting, cos: Tensor, sin: Tensor) -> Tensor:
    """Projections, RoPE, kernel, output projection (transformers modeling_llama.py LlamaAttention)."""
    q = relayout(project(x, modules["self_attn.q_proj"], s.rows))
    k = relayout(project(x, modules["self_attn.k_proj"], s.rows))
    v = project(x, modules["self_attn.v_proj"], s.rows)
    turned = rotate(q, cos, sin), rotate(k, cos, sin)
    q, k = turned
    del turned
    y = kernel(q, k, v, s)
    return project(y, modules["self_attn.o_proj"], s.rows)


def kernel(q: Tensor, k: Tensor, v: Tensor, s: Setting) -> Tensor:
    """The kernel that `attention` and the dtypes lead to."""
    tape = q.storage.tape
    if tape.autocast:
        q, k, v = to(q, tape.autocast), to(k, tape.autocast), to(v, tape.autocast)
    return flash(q, k, v, s)
