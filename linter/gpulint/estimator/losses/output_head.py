"""The projection from hidden states to logits, and what a model does to them before its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.backward import fresh
from ..tape.matmuls import linear_wide
from ..tape.ops import divided, leaf, scale, to, unary
from ..tape.tape import tape_of
from ..tape.tensor import count_as_logits

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from ..tape.tensor import Parameter, Tensor

PART = "head"


def head(h: Tensor, module: Linear, outside: Modules, rows: int, dims: LayerDims) -> Tensor:
    """Logits of every scored token: lm_head, then scaling and soft cap where the model has them."""
    projection = outside.leaf("project_out")
    if projection is not None:
        h = project(h, projection, rows)
    if dims.float_residual:
        h = to(h, module.weight.e)
    if dims.loss.normed_head:
        logits = linear_wide(h, normed(module.weight, h.n // rows, h), rows)
    else:
        logits = project(h, module, rows)
    count_as_logits(logits)
    if dims.loss.gathers_logits:
        logits = whole(logits, dims.job.parallelism.tensor)
    if dims.arch.logits_float:
        logits = to(logits, 4)
    if dims.arch.logits_scale:
        logits = scale(logits)
    if dims.loss.softcap:
        logits = scale(logits)
        logits = unary(logits, save_input=False, save_output=True, logits=True)
        logits = scale(logits)
    return logits


def normed(weight: Parameter, width: int, h: Tensor) -> Tensor:
    """The weight with rows of length 1, made for every pass in training (modeling_baichuan.py NormHead).

    Autocast takes the lengths in float32, which makes the quotient float32. The norm saves its input and the lengths;
    backward: x * (g / length).
    """
    tape = tape_of(h)
    rows = leaf(tape, weight)
    return divided(rows, _lengths(to(rows, 4 if tape.autocast else rows.e), width))


def _lengths(x: Tensor, width: int) -> Tensor:
    return fresh(tape_of(x).new(x.n // width, x.e), x, x.storage)


def whole(logits: Tensor, ranks: int) -> Tensor:
    """The logits of the whole vocabulary on every rank, gathered; backward takes this rank's part of the gradient.

    Transformers' `colwise_gather_output` for lm_head (integrations/tensor_parallel.py 5.0, `colwise_rep` in 4), and
    DeepSpeed's LmHeadLinearAllreduce.
    """
    return fresh(tape_of(logits).new(logits.n * ranks, logits.e, logits=True), logits, logits=True)
