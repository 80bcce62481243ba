"""Encoder-decoders: an encoder's stack, then a decoder's whose layers attend to what the encoder made.

Layers are numbered through both stacks, the encoder's first. What leads from one stack to the next (the encoder's last
norm, the decoder's embeddings) runs before the decoder's first layer. The first and the last layer of each stack are
kinds of their own: the gradients of what all layers of a stack read begin with the last one.
Source: transformers 5.23 models/t5/modeling_t5.py, bart/modeling_bart.py and those that copy them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..encoders.speech_frames import audio_features
from ..layers.families.encoder_decoder import StackLayer
from ..layers.layer_inputs import StackInputs
from ..layers.norms import NORMS
from ..tape.indexing import embedding
from ..tape.labels import labelled
from ..tape.ops import add, dropout, scale

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .network import EncoderDecoder

PART = "around the stacks"


@labelled("both")
def both_stacks(
    tape: Tape,
    network: EncoderDecoder,
    state: ReplayState,
    kinds: list[int],
    outside: Modules,
    ids: Tensor,
    *,
    segments: bool,
) -> Tensor:
    """The decoder's last hidden states."""
    encoder, dims = network.first.dims, network.dims
    inputs = StackInputs(encoder.rows)
    h, words = _begun(tape, network, state, outside, ids)
    inputs.mask = _padding(tape, network)
    for segment, layer in enumerate(kinds, 1):
        if segments:
            tape.enter(segment)
        if layer == encoder.layers:
            states = _ended(h, encoder, outside, "encoder")
            state.module_outputs.append(states)
            inputs = StackInputs(encoder.rows, states, inputs.mask)
            del words
            h, words = _embedded(tape, dims, outside, tape.new(dims.rows, 8), "decoder")
        block = _layer(network, state, layer, inputs)
        mode = dims.checkpoint.mode if tape.recording else "none"
        if mode in ("full", "offload"):
            block.prepare(tape)
            h = tape.checkpoint(block, h, mode, dims.checkpoint.reentrant, others=inputs.with_gradients())
        else:
            h = block(h)
        del block
    if segments:
        tape.enter(len(kinds) + 1)
    h = _ended(h, dims, outside, "decoder")
    del words
    return h


def encoded(
    tape: Tape, network: EncoderDecoder, state: ReplayState, kinds: list[int], outside: Modules, ids: Tensor
) -> Tensor:
    """The encoder's last hidden states, without gradients."""
    encoder = network.first.dims
    inputs = StackInputs(encoder.rows)
    h, words = _begun(tape, network, state, outside, ids)
    inputs.mask = _padding(tape, network)
    for layer in kinds:
        h = _layer(network, state, layer, inputs)(h)
    h = _ended(h, encoder, outside, "encoder")
    state.held_by_forward.clear()
    del words
    return h


def _layer(network: EncoderDecoder, state: ReplayState, layer: int, inputs: StackInputs) -> StackLayer:
    side, number = network.side(layer)
    return StackLayer(side.dims, side.weights.layer(number, state), number, side is network, inputs)


def _begun(
    tape: Tape, network: EncoderDecoder, state: ReplayState, outside: Modules, ids: Tensor
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The encoder's input, and what its forward function holds of it."""
    if network.audio:
        h, words = audio_features(tape, network.first.dims, state, outside)
        return h, (words,)
    return _embedded(tape, network.first.dims, outside, ids, "encoder")


@labelled("padding")
def _padding(tape: Tape, network: EncoderDecoder) -> Tensor | None:
    """The encoder's mask of a padded batch: one byte a position, spread over the queries."""
    dims = network.dims
    padded = dims.job.padded and dims.attention.implementation == "sdpa" and not network.audio
    return tape.new(network.first.dims.rows, 1) if padded else None


@labelled("embedded")
def _embedded(
    tape: Tape, dims: LayerDims, outside: Modules, ids: Tensor, side: str
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """A stack's input, and the words and positions that its forward function holds."""
    own = next((m for key, m in outside.named.items() if m.role == "embedding" and f"{side}." in key), None)
    table = own or outside.need("embedding")
    words = embedding(tape, dims.rows, table.weight, dims.hidden, ids)
    if dims.inputs_require_grad and words.node is None:
        tape.source(words)
    if dims.arch.embed_scale:
        words = scale(words)
    h, places = words, None
    if dims.arch.positions != "none":
        where = next((m for key, m in outside.named.items() if f"{side}.embed_positions" in key), None)
        rows = dims.rows if side == "encoder" and dims.arch.positions == "rows" else dims.length
        places = tape.new(rows * dims.hidden, words.e)
        if where is not None and where.weight.trainable:
            places = embedding(tape, rows, where.weight, dims.hidden, tape.new(rows, 8))
        h = add(words, places)
    if dims.arch.embed_norm:
        module = next(m for key, m in outside.named.items() if f"{side}.{dims.arch.embed_norm}" in key)
        h = NORMS[dims.arch.norm](h, module, dims.rows)
    return dropout(h, dims.dropout.embedding), (words, places)


def _ended(h: Tensor, dims: LayerDims, outside: Modules, side: str) -> Tensor:
    """The norm behind a stack, where it has one, and T5's dropout behind that."""
    final = dims.arch.final
    module = next((m for key, m in outside.named.items() if f"{side}.{final}" in key), None) if final else None
    if module is None:
        return h
    h = NORMS[dims.arch.norm](h, module, dims.rows)
    return dropout(h, dims.dropout.residual) if dims.arch.order == "t5" else h
