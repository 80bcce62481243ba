"""The layers of a model one after the other, from what is made before them to the norm behind the last."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from ..layers.decoder import DecoderLayer
from ..layers.layer_inputs import slice_of
from ..layers.norms import normed
from ..tape.labels import labelled
from ..tape.ops import gathered
from .embedding_stage import embedding_stage
from .encoder_decoder import both_stacks
from .network import EncoderDecoder

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..layers.dims import LayerDims
    from ..layers.layer_inputs import LayerInputs
    from ..layers.state import ReplayState
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .network import Network


@labelled(part="final norm")
def hidden_states(
    tape: Tape,
    network: Network,
    state: ReplayState,
    kinds: list[int],
    outside: Modules,
    ids: Tensor,
    *,
    segments: bool,
    lives: list[int] | None = None,
) -> Tensor:
    """The last hidden states of a forward pass; `segments`: each layer begins one; `lives`: bytes alive after each."""
    if isinstance(network, EncoderDecoder):
        return both_stacks(tape, network, state, kinds, outside, ids, segments=segments)
    dims = network.dims
    inputs = embedding_stage(tape, network, state, outside, ids)
    h = inputs.hidden
    collected: list[Tensor] = []
    for segment, number in enumerate(kinds, 1):
        if segments:
            tape.enter(segment)
        layer = DecoderLayer(dims, network.weights, state, number, inputs, slice_of(inputs.extra, dims))
        if layer.skipped:
            continue
        h = _through(tape, layer, h)
        del layer
        if number < len(inputs.deepstack):
            h = _with_deepstack(h, inputs, number, dims)
        if dims.arch.collects:
            collected.append(h)
        if lives is not None:
            lives.append(tape.live)
    if segments:
        tape.enter(len(kinds) + 1)
    if dims.arch.order == "altup":
        from ..layers.families.altup import joined

        h = joined(h, dims, network.weights)
    h = normed(h, final_norm(outside, dims), dims.stream_rows, dims)
    if dims.sequence_shards > 1:
        h = gathered(h, h.n * dims.sequence_shards)
    tape.returned = None
    shared = {ref(x.storage): x.storage.size for x in inputs.common()}
    del inputs
    tape.watch(shared.items())
    return h


def _through(tape: Tape, layer: DecoderLayer, h: Tensor) -> Tensor:
    """A layer's output, which a checkpointed layer makes again in backward."""
    dims = layer.dims
    mode = dims.checkpoint.layers[layer.number] if tape.recording else "none"
    if mode == "none":
        return layer(h)
    read = () if layer.encoder_states is None else (layer.encoder_states.states,)
    reentrant = dims.checkpoint.reentrant and mode in ("full", "offload")
    sums = dims.compiled and not dims.arch.norms[3]
    return tape.checkpoint(layer, h, mode, reentrant, sums=sums, others=read)


def _with_deepstack(h: Tensor, inputs: LayerInputs, number: int, dims: LayerDims) -> Tensor:
    from ..encoders.projector import deepstack_added

    return deepstack_added(h, inputs.deepstack[number], dims)


def final_norm(outside: Modules, dims: LayerDims) -> Linear | None:
    """The norm between the layers and the head, where there is one."""
    if dims.arch.final != "last":
        return outside.leaf(dims.arch.final) if dims.arch.final else None
    found = outside.norms(dims.hidden)
    return found[-1] if found else None
