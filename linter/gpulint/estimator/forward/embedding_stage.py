"""What is made before the layers: embeddings, images and prompts among them, positions, rotary tables, masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import adapted_embeds, project
from ..layers.layer_inputs import LayerInputs, layer_inputs, layer_tokens
from ..layers.norms import NORMS
from ..states.buffers.stable_embedding import NORM as STABLE
from ..tape.indexing import embedding
from ..tape.labels import labelled
from ..tape.ops import add, contiguous, dropout, scale, scattered
from .masks import mask, rotary_table, sliding_mask
from .virtual_tokens import prefix, with_virtual_tokens

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..encoders.projector import Embedded
    from ..layers.dims import LayerDims
    from ..layers.layer_inputs import EncoderStates
    from ..layers.state import ReplayState
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .network import Network

PART = "before the layers"


@labelled("positions")
def embedding_stage(tape: Tape, network: Network, state: ReplayState, outside: Modules, ids: Tensor) -> LayerInputs:
    """Embeddings and what else every layer reads. The embedding output stays alive through the forward pass.

    Gemma 4's class with encoders holds the second embedding too, and a copy of the first without images' places
    (modeling_gemma4.py Gemma4Model.forward `llm_inputs_embeds`).
    """
    dims = network.dims
    if dims.arch.waves or dims.arch.encoder:
        return _encoder(tape, network, state, outside, ids)
    embeds = _looked_up(tape, dims, outside, ids)
    scaled = dims.arch.embed_scale == "module"
    if scaled:
        embeds = scale(embeds)
    if dims.inputs_require_grad and embeds.node is None:
        tape.source(embeds)
    embeds = adapted_embeds(embeds, outside.need("embedding"), ids, _text_rows(dims), scaled)
    if dims.arch.embed_scale == "model":
        embeds = scale(embeds)
    tokens = layer_tokens(tape, ids, outside, dims)
    words = [tokens, tape.new(embeds.n, embeds.e)] if tokens is not None and dims.images.read else []
    states, features = _encoder_states(tape, network, state)
    embedded = _with_images(tape, network, state, embeds)
    if embedded is not None:
        embeds = embedded.embeds
    embeds = with_virtual_tokens(dims, state, outside, embeds)
    keys = prefix(tape, dims, outside)
    held = [embeds] if embedded is None else [embeds, *embedded.held]
    held += [*words, *([] if features is None else [features])]
    if keys is not None:
        held.append(keys)
    extra = contiguous(embeds) if dims.arch.order == "zamba" else None
    if tokens is not None:
        extra = layer_inputs(embeds, tokens, outside, dims)
    del tokens
    positions = tape.new(dims.length, 8)
    h = embeds
    projection = outside.leaf("project_in")
    if projection is not None:
        embeds = h = project(h, projection, dims.rows)
    if dims.arch.positions == "table":
        where = outside.need("position").weight
        places = embedding(tape, dims.length, where, dims.hidden, positions)
        h = add(embeds, places)
        held.append(places)
    if dims.arch.embed_norm:
        h = NORMS[dims.arch.norm](h, outside.leaf(dims.arch.embed_norm), dims.rows)
    if dims.sequence_shards > 1:
        h = scattered(h, dims.stream_rows * dims.hidden)
    h = dropout(h, dims.dropout.embedding)
    laid = _laid_out(tape, network, h, tuple(held), positions, extra)
    laid = laid._replace(encoder_states=states)
    return laid if embedded is None else laid._replace(deepstack=embedded.deepstack)


def _encoder(tape: Tape, network: Network, state: ReplayState, outside: Modules, ids: Tensor) -> LayerInputs:
    """Embeddings of an encoder, or what it makes of samples, and what its scores take from all layers."""
    dims = network.dims
    if dims.arch.waves:
        from ..encoders.speech_frames import speech_frames

        begun = speech_frames(tape, dims, state, outside)
        return _laid_out(tape, network, begun.hidden, begun.held, tape.new(0, 8), None)
    from .bert_embeddings import bert_embeddings

    positions = tape.new(dims.rows if dims.arch.positions == "rows" else dims.length, 8)
    h = bert_embeddings(tape, dims, outside, ids, positions)
    laid = _laid_out(tape, network, h, (h,) if dims.arch.order != "pre" else (), positions, None)
    if dims.arch.scores == "disentangled":
        from ..layers.attention.disentangled import distances

        return laid._replace(shared=distances(tape, dims, outside))
    if dims.arch.scores == "relative":
        from ..layers.attention.relative import biases

        return laid._replace(shared=biases(tape, dims, outside))
    return laid


def _looked_up(tape: Tape, dims: LayerDims, outside: Modules, ids: Tensor) -> Tensor:
    """The embeddings of the text's tokens, normalised where the table is bitsandbytes' StableEmbedding."""
    weight = outside.need("embedding").weight
    text = _text_rows(dims)
    embeds = embedding(tape, text, weight, weight.n // dims.vocabulary_rows, ids)
    norm = outside.leaf(STABLE)
    return embeds if norm is None else NORMS["layer"](embeds, norm, text)


def _text_rows(dims: LayerDims) -> int:
    """Tokens that are looked up: all but virtual ones."""
    return dims.rows - dims.batch * dims.prompt.virtual_tokens


def _encoder_states(tape: Tape, network: Network, state: ReplayState) -> tuple[EncoderStates | None, Tensor | None]:
    """Images that layers attend to, and what the vision encoder made of them."""
    dims, vision = network.dims, network.vision
    if vision is None or not dims.images.cross_layers:
        return None, None
    from ..encoders.tiles import encoder_states

    return encoder_states(tape, dims, network.weights, state, vision)


def _with_images(tape: Tape, network: Network, state: ReplayState, embeds: Tensor) -> Embedded | None:
    """The embeddings with images among them."""
    dims, vision = network.dims, network.vision
    if vision is None or dims.images.cross_layers:
        return None
    from ..encoders.projector import with_images

    return with_images(tape, dims, network.weights, state, vision, embeds)


def _laid_out(
    tape: Tape, network: Network, h: Tensor, held: tuple[Tensor, ...], positions: Tensor, extra: Tensor | None
) -> LayerInputs:
    """The embeddings with rotary tables and masks."""
    dims, e = network.dims, h.e
    tables = [rotary_table(tape, dims, rotary, e) for rotary in dims.rotary]
    full, sliding = mask(tape, dims, None, e), sliding_mask(tape, dims, e)
    if dims.arch.order == "altup":
        from ..layers.families.altup import spread

        h, parts = spread(h, dims, network.weights)
        held = (*held, *parts)
    other = tables[1] if len(tables) > 1 else None
    return LayerInputs(h, held, tables[0], other, full, sliding, positions, extra, {})
