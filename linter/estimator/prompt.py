"""A prompt's pass through the layers, replayed on the tape: what is alive beside weights and cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..job import Parallelism
from .activations import layer_kinds
from .estimate import Phase
from .layers import Layer
from .pictures import pictures
from .seq2seq import Pair, encoded
from .setting import Setting
from .sharing import slice_of
from .stem import stem

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model


def widest(job: Job, model: Model, batch: int, length: int, cache: int) -> int:
    """The most bytes alive in any layer while `batch` prompts of `length` tokens go through, without the cache.

    What comes before the layers, towers among it, runs while the `cache` of so many bytes is empty still.
    Each distinct kind of layer runs once. From where attention has its keys and values they are the cache's; before,
    what the layer will put there is taken off, since the cache counts as full.
    """
    s = Setting(_plain(job, batch, length), model)
    s.still()
    tape = s.tape()
    tape.recording = False
    tape.caching = True
    base = stem(tape, s, s.modules(None), tape.new(s.rows, 8))
    before = tape.highest
    tape.enter(0)
    h, base = base.hidden, base._replace(hidden=tape.new(0, 1))
    for layer in layer_kinds(s)[0]:
        block = Layer(s, layer, base, slice_of(base.extra, s))
        h = h if block.passed else block(h)
    del h, base
    return max(before - cache, tape.highest)


def seen(phase: Phase, job: Job, model: Model, batch: int) -> Phase:
    """A phase behind the prompt with the prompt's images, float32 pixels and int64 masks that `generate` holds."""
    found = pictures(_plain(job, batch, 1), model, batch)
    if found is None:
        return phase
    activations = phase.components["activations"] + found.images * (4 * found.pixels + 8 * found.masked)
    return Phase(phase.name, {**phase.components, "activations": activations})


def widest_encoder(job: Job, model: Model, batch: int, length: int) -> int:
    """The same of an encoder-decoder's encoder, and its input: what the prompt's pass takes beside the weights."""
    s = Pair(_plain(job, batch, length), model)
    s.still()
    tape = s.tape()
    tape.recording = False
    kinds, _ = layer_kinds(s)
    ids = tape.new(s.encoder.rows, 8)
    memory = encoded(tape, s, [layer for layer in kinds if layer < s.encoder.layers], s.modules(None), ids)
    del memory, ids
    return tape.highest


def _plain(job: Job, batch: int, length: int) -> Job:
    """A training job of the same shapes, on whose tape nothing is recorded; prompts are text but for stated images."""
    plain = replace(job, kind="training", micro_batch_size=batch, sequence_length=length, adapter=None, method="full")
    plain.images = job.images or 0
    precision = replace(job.precision, autocast=None)
    return replace(plain, precision=precision, objective="sft", parallelism=Parallelism())
