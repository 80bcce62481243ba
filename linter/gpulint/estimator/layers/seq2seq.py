"""Encoder-decoders: an encoder's stack, then a decoder's whose layers attend to what the encoder made.

Layers are numbered through both stacks, the encoder's first. What leads from one stack to the next (the encoder's last
norm, the decoder's embeddings) runs before the decoder's first layer. The first and the last layer of each stack are
kinds of their own: the gradients of what all layers of a stack read begin with the last one.
Source: transformers 5.23 models/t5/modeling_t5.py, bart/modeling_bart.py and those that copy them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..encoders.audio import heard
from ..estimate import NotEstimable
from ..frameworks.release import reentrant
from ..tape.indexing import embedding
from ..tape.ops import add, dropout, scale
from .attention.cross_attention import Block, Inside
from .norms import NORMS
from .setting import Setting

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..adapters.modules import Modules
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor

PART = "around the stacks"


class Pair(Setting):
    """The decoder's setting, with the encoder's beside it; `layers` counts those of both."""

    def __init__(self, job: Job, model: Model) -> None:
        first, second = stacks(model)
        source = replace(job, sequence_length=source_length(job, model))
        self.encoder = Setting(source, _view(model, first), first)
        target = target_length(job, model)
        super().__init__(replace(job, sequence_length=target), _view(model, second), second)
        self.encoder.cache = self.cache
        self.layers += self.encoder.layers
        self.source = job
        self.model = model

    def still(self) -> None:
        """Without dropout on either side."""
        super().still()
        self.encoder.still()

    def parts(self, layer: int) -> tuple[Setting, int]:
        """The side that a layer belongs to, and its number there."""
        before = self.encoder.layers
        return (self.encoder, layer) if layer < before else (self, layer - before)

    def kind(self, layer: int) -> object:
        """Which stack, and whether first or last in it."""
        encodes = layer < self.encoder.layers
        return encodes, layer in (0, self.encoder.layers), layer in (self.encoder.layers - 1, self.layers - 1)

    def modules(self, layer: int | None) -> Modules:
        """Those of a layer of either stack."""
        if layer is None:
            return super().modules(None)
        side, number = self.parts(layer)
        return super().modules(number) if side is self else side.modules(number)


def setting(job: Job, model: Model) -> Setting:
    """The setting of a job: a Pair where the model's two stacks are read."""
    return Pair(job, model) if paired(model) else Setting(job, model)


def paired(model: Model) -> bool:
    """Whether a model has an encoder with a stack of its own and layers that are written down here."""
    from ...models.arch_spec import arch_spec
    from ...models.model import text_config

    order = arch_spec(model.model_type, text_config(model.config), model.shape.norm).order
    return bool(model.shape.encoder_layers) and order in ("t5", "bart", "mbart")


def source_length(job: Job, model: Model) -> int | None:
    """Positions that the encoder reads: the job's tokens, or the frames of Whisper's window, half of them mel frames.

    Its feature extractor pads every recording to the window (transformers feature_extraction_whisper.py).
    """
    return model.shape.cross_tokens if hears(model) else job.sequence_length


def target_length(job: Job, model: Model) -> int | None:
    """Tokens that the decoder reads."""
    target = job.target_length or job.sequence_length
    most = model.config.get("max_target_positions") if hears(model) else None
    return min(target, most) if target and isinstance(most, int) else target


def hears(model: Model) -> bool:
    """Whether the encoder reads mel frames and not tokens."""
    return any(tensor.role == "conv" and "encoder." in tensor.name for tensor in model.tensors)


def stacks(model: Model) -> tuple[str, str]:
    """The name prefixes of encoder and decoder. Raises NotEstimable where a pipeline stage has no layer of one."""
    found = dict.fromkeys(tensor.stack for tensor in model.tensors if tensor.stack)
    sides = [next((name for name in found if side in name), None) for side in ("encoder", "decoder")]
    if None in sides:
        raise NotEstimable(f"a pipeline stage of {model.id} has no layer of its encoder or of its decoder")
    return str(sides[0]), str(sides[1])


def _view(model: Model, stack: str) -> Model:
    """The model with the dimensions of one of its stacks."""
    own = [tensor for tensor in model.tensors if tensor.stack == stack and tensor.layers]
    layers = len({layer for tensor in own for layer in tensor.layers or ()})
    side = "encoder" if "encoder" in stack else "decoder"
    heads = model.config.get(f"{side}_attention_heads") or model.shape.heads
    width = next(tensor.shape[0] for tensor in own if tensor.role == "q")
    shape = model.shape._replace(
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        v_head_dim=width // heads,
        windows=(None,) * layers,
        layer_types=(),
        layer_heads=(),
        layer_kv_heads=(),
        layer_head_dims=(),
    )
    return model._replace(shape=shape)


def both(tape: Tape, s: Pair, kinds: list[int], outside: Modules, ids: Tensor, *, segments: bool) -> Tensor:
    """The decoder's last hidden states."""
    inside = Inside(s.encoder.rows)
    h, words = _begun(tape, s, outside, ids)
    inside.mask = _padding(tape, s)
    for segment, layer in enumerate(kinds, 1):
        if segments:
            tape.enter(segment)
        if layer == s.encoder.layers:
            memory = _ended(h, s.encoder, outside, "encoder")
            s.returned.append(memory)
            inside = Inside(s.encoder.rows, memory, inside.mask)
            del words
            h, words = _embedded(tape, s, outside, tape.new(s.rows, 8), "decoder")
        block = Block(s, layer, inside)
        mode = s.job.activation_checkpointing if tape.recording else "none"
        if mode in ("full", "offload"):
            inside.prepare(block, tape)
            h = tape.checkpoint(block, h, mode, reentrant(s.job), others=inside.shared())
        else:
            h = block(h)
        del block
    if segments:
        tape.enter(len(kinds) + 1)
    h = _ended(h, s, outside, "decoder")
    del words
    return h


def encoded(tape: Tape, s: Pair, kinds: list[int], outside: Modules, ids: Tensor) -> Tensor:
    """The encoder's last hidden states, without gradients."""
    inside = Inside(s.encoder.rows)
    h, words = _begun(tape, s, outside, ids)
    inside.mask = _padding(tape, s)
    for layer in kinds:
        h = Block(s, layer, inside)(h)
    h = _ended(h, s.encoder, outside, "encoder")
    s.encoder.cache.clear()
    del words
    return h


def _begun(tape: Tape, s: Pair, outside: Modules, ids: Tensor) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The encoder's input, and what its forward function holds of it."""
    if hears(s.model):
        h, words = heard(tape, s.encoder, outside)
        return h, (words,)
    return _embedded(tape, s.encoder, outside, ids, "encoder")


def _padding(tape: Tape, s: Pair) -> Tensor | None:
    """The encoder's mask of a padded batch: one byte a position, spread over the queries."""
    padded = s.job.padded and s.attention == "sdpa" and not hears(s.model)
    return tape.new(s.encoder.rows, 1) if padded else None


def _embedded(
    tape: Tape, s: Setting, outside: Modules, ids: Tensor, side: str
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """A stack's input, and the words and positions that its forward function holds."""
    own = next((m for key, m in outside.named.items() if m.role == "embedding" and f"{side}." in key), None)
    table = own or outside.need("embedding")
    words = embedding(tape, s.rows, table.weight, s.hidden, ids)
    if s.leaf_inputs and words.node is None:
        tape.source(words)
    if s.traits.embed_scale:
        words = scale(words)
    h, places = words, None
    if s.traits.positions != "none":
        where = next((m for key, m in outside.named.items() if f"{side}.embed_positions" in key), None)
        rows = s.rows if side == "encoder" and s.traits.positions == "rows" else s.length
        places = tape.new(rows * s.hidden, words.e)
        if where is not None and where.weight.trainable:
            places = embedding(tape, rows, where.weight, s.hidden, tape.new(rows, 8))
        h = add(words, places)
    if s.traits.embed_norm:
        module = next(m for key, m in outside.named.items() if f"{side}.{s.traits.embed_norm}" in key)
        h = NORMS[s.traits.norm](h, module, s.rows)
    return dropout(h, s.embedding_dropout), (words, places)


def _ended(h: Tensor, s: Setting, outside: Modules, side: str) -> Tensor:
    """The norm behind a stack, where it has one, and T5's dropout behind that."""
    if not s.traits.final:
        return h
    module = next((m for key, m in outside.named.items() if f"{side}.{s.traits.final}" in key), None)
    if module is None:
        return h
    h = NORMS[s.traits.norm](h, module, s.rows)
    return dropout(h, s.residual_dropout) if s.traits.order == "t5" else h
