"""A prompt's pass through the layers, replayed on the tape: what is alive beside weights and cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..job import Parallelism
from .activations import layer_kinds
from .layers import Layer
from .setting import Setting
from .sharing import slice_of
from .stem import stem

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model


def widest(job: Job, model: Model, batch: int, length: int) -> int:
    """The most bytes alive in any layer while `batch` prompts of `length` tokens go through, without the cache.

    Each distinct kind of layer runs once. From where attention has its keys and values they are the cache's; before,
    what the layer will put there is taken off, since the cache counts as full.
    """
    plain = replace(job, kind="training", micro_batch_size=batch, sequence_length=length, adapter=None, method="full")
    precision = replace(job.precision, autocast=None)
    plain = replace(plain, precision=precision, objective="sft", parallelism=Parallelism())
    s = Setting(plain, model)
    s.attention_dropout = s.residual_dropout = s.embedding_dropout = 0.0
    tape = s.tape()
    tape.recording = False
    tape.caching = True
    base = stem(tape, s, s.modules(None), tape.new(s.rows, 8))
    h = base.hidden
    for layer in layer_kinds(s)[0]:
        block = Layer(s, layer, base, slice_of(base.extra, s))
        h = block(h)
    del h, base
    return tape.highest
