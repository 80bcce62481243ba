"""Task heads on the tape: what stands between the last layer and the loss where it is not a language model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..layers.activation import activation
from ..layers.norms import NORMS
from ..tape.indexing import split, window
from ..tape.ops import add, contiguous, dropout, to, unary
from ..tape.tensor import Tensor, mark
from .pieces import cross_entropy

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.setting import Setting
    from ..tape.tape import Tape

PART = "task head"


def task_loss(h: Tensor, outside: Modules, s: Setting, tape: Tape, segment: int) -> Tensor:
    """Head and loss of the job's task; `segment` begins where the loss function does.

    classification         the first token of each sequence (a decoder's: scores of all tokens, of which one is taken)
    token_classification   every token, dropout before the classifier
    question_answering     two scores a token, taken apart
    seq2seq                every token of the target
    ctc                    every frame of sound, aligned with the target
    masked_lm              every token, a dense layer with its norm, then the vocabulary
    """
    task, rows = s.objective.loss, s.rows
    if task == "ctc":
        from ..encoders.speech_frames import ctc

        return ctc(h, outside.need("head"), s, tape, segment)
    pooled = task == "classification" and s.traits.encoder
    if pooled:
        h, rows = window(h, s.batch * s.hidden), s.batch
    between = outside.role("transform")
    if between is not None:
        h = transformed(h, between, outside, rows, s)
    if task in ("classification", "token_classification") and s.traits.encoder:
        h = dropout(h, s.head_dropout)
    head = outside.role("head") or tied_head(outside)
    logits = project(h, head, rows)
    if s.traits.logits_bias:
        logits = add(logits, Tensor(tape.nothing, 1, s.dtype_bytes))
    del h
    if task in ("masked_lm", "seq2seq"):
        return _masked(logits, s, tape, segment)
    return _few(logits, task, rows, s, tape, segment)


def transformed(h: Tensor, between: Linear, outside: Modules, rows: int, s: Setting) -> Tensor:
    """A dense layer, its activation, and its norm where it has one."""
    h = project(h, between, rows)
    pooler = s.objective.loss == "classification" and s.traits.pooler == "tanh"
    h = (
        unary(h, save_input=False, save_output=True)
        if pooler
        else activation(s.traits.head_activation or s.activation)(h)
    )
    if s.objective.loss == "masked_lm" or s.traits.pooler == "normed":
        h = NORMS[s.traits.norm](h, outside.norms(between.out)[-1], rows)
    return h


def tied_head(outside: Modules) -> Linear:
    """The embedding as a head, with the bias over the vocabulary that stands alone."""
    words = outside.need("embedding")
    alone = [found for found in outside.named.values() if found.role == "bias" and found.weight.n == words.out]
    words.bias = alone[-1].weight if alone else None
    return words


def _masked(logits: Tensor, s: Setting, tape: Tape, segment: int) -> Tensor:
    """Cross entropy over every token, in float32 where the class calls the shared loss (`ForMaskedLMLoss`)."""
    mark(logits)
    s.remember([logits])
    tape.enter(segment)
    s.returned.append(logits)
    return cross_entropy(to(logits, 4) if s.traits.shared_loss else logits, None, tape)


def _few(logits: Tensor, task: str, rows: int, s: Setting, tape: Tape, segment: int) -> Tensor:
    """A few scores: those of each token in float32, those of one token, or both ends of an answer."""
    tape.enter(segment)
    if task == "question_answering":
        first, second = (contiguous(part) for part in split(logits, (rows, rows)))
        return add(cross_entropy(first, None, tape), cross_entropy(second, None, tape))
    if task == "classification" and not s.traits.encoder:
        logits = window(logits, logits.n // s.length)
    return cross_entropy(to(logits, 4) if task == "token_classification" else logits, None, tape)
