"""Task heads on the tape: what stands between the last layer and the loss where it is not a language model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.norms import NORMS
from ..tape.indexing import split, window
from ..tape.ops import add, contiguous, dropout, to, unary
from ..tape.tensor import Tensor, count_as_logits
from .ctc import ctc
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from .context import LossContext

PART = "task head"


def task_loss(h: Tensor, context: LossContext) -> Tensor:
    """Head and loss of the job's task.

    classification         the first token of each sequence (a decoder's: scores of all tokens, of which one is taken)
    token_classification   every token, dropout before the classifier
    question_answering     two scores a token, taken apart
    seq2seq                every token of the target
    ctc                    every frame of sound, aligned with the target
    masked_lm              every token, a dense layer with its norm, then the vocabulary
    """
    outside, dims, _, tape, _ = context
    task, rows = dims.loss.task, dims.rows
    if task == "ctc":
        return ctc(h, outside.need("head"), context)
    pooled = task == "classification" and dims.arch.encoder
    if pooled:
        h, rows = window(h, dims.batch * dims.hidden), dims.batch
    between = outside.role("transform")
    if between is not None:
        h = transformed(h, between, outside, rows, dims)
    if task in ("classification", "token_classification") and dims.arch.encoder:
        h = dropout(h, dims.dropout.head)
    head = outside.role("head") or tied_head(outside)
    logits = project(h, head, rows)
    if dims.arch.logits_bias:
        logits = add(logits, Tensor(tape.nothing, 1, dims.embedding_e))
    del h
    if task in ("masked_lm", "seq2seq"):
        return _masked(logits, context)
    return _few(logits, task, rows, context)


def transformed(h: Tensor, between: Linear, outside: Modules, rows: int, dims: LayerDims) -> Tensor:
    """A dense layer, its activation, and its norm where it has one."""
    h = project(h, between, rows)
    pooler = dims.loss.task == "classification" and dims.arch.pooler == "tanh"
    h = (
        unary(h, save_input=False, save_output=True)
        if pooler
        else activation(dims.arch.head_activation or dims.activation)(h)
    )
    if dims.loss.task == "masked_lm" or dims.arch.pooler == "normed":
        h = NORMS[dims.arch.norm](h, outside.norms(between.out)[-1], rows)
    return h


def tied_head(outside: Modules) -> Linear:
    """The embedding as a head, with the bias over the vocabulary that stands alone."""
    words = outside.need("embedding")
    alone = [found for found in outside.named.values() if found.role == "bias" and found.weight.n == words.out]
    words.bias = alone[-1].weight if alone else None
    return words


def _masked(logits: Tensor, context: LossContext) -> Tensor:
    """Cross entropy over every token, in float32 where the class calls the shared loss (`ForMaskedLMLoss`)."""
    count_as_logits(logits)
    context.state.remember([logits], context.dims.loss.kept)
    context.enter()
    context.state.module_outputs.append(logits)
    return cross_entropy(to(logits, 4) if context.dims.arch.shared_loss else logits, None, context.tape)


def _few(logits: Tensor, task: str, rows: int, context: LossContext) -> Tensor:
    """A few scores: those of each token in float32, those of one token, or both ends of an answer."""
    dims, tape = context.dims, context.tape
    context.enter()
    if task == "question_answering":
        first, second = (contiguous(part) for part in split(logits, (rows, rows)))
        return add(cross_entropy(first, None, tape), cross_entropy(second, None, tape))
    if task == "classification" and not dims.arch.encoder:
        logits = window(logits, logits.n // dims.length)
    return cross_entropy(to(logits, 4) if task == "token_classification" else logits, None, tape)
