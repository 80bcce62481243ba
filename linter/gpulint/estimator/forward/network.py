"""A model as a replay runs it: its dims, weights and encoder, of one stack or of two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..encoders.vision_dims import vision_dims
from ..estimate import NotEstimable
from ..inputs.objectives import has_audio, is_encoder_decoder, source_length, target_length
from ..layers.resolve import resolve

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..encoders.vision_dims import VisionDims
    from ..layers.dims import LayerDims
    from ..layers.weights import ModelWeights
    from ..tape.options import Options


@dataclass(frozen=True, slots=True)
class Network:
    """One stack of layers; `vision` is there where the micro batch has images, `options` are the tape's."""

    dims: LayerDims
    weights: ModelWeights
    options: Options
    vision: VisionDims | None = None

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.dims.layers

    def kind(self, layer: int, weights: int | None) -> object:
        """What tells layers apart: the kind of attention and MLP, and which of its `weights` are trained or adapted."""
        dims = self.dims
        return (
            dims.windows[layer],
            dims.layer_types[layer] if dims.layer_types else "",
            weights,
            dims.rope_types[layer],
            layer in dims.shared_keys,
            dims.checkpoint.layers[layer],
            layer in dims.sparse_gates,
            self.weights.sharing(layer),
            layer if layer < dims.images.deepstack else -1,
            layer == max(dims.images.cross_layers, default=-1),
        )

    def _signatures(self) -> dict[int, int]:
        """By layer, a bit for each parameter that some layers have and others lack."""
        found: dict[int, int] = {}
        for number, item in enumerate(self.weights.items):
            few = item.layers is not None and len(item.layers) < self.dims.layers
            for layer in (item.layers or ()) if few and item.name.startswith(self.weights.stack) else ():
                found[layer] = found.get(layer, 0) | 1 << number
        return found

    def kinds(self) -> tuple[list[int], list[int]]:
        """One layer of each distinct kind, and for every layer the index of its kind.

        The first layer is a kind of its own: its input is the embedding output, which outlives it. So are those up to
        the first one that trains something, whose input may want no gradient.
        """
        first, signatures = self._first_trained(), self._signatures()
        kinds: list[int] = []
        known: dict[object, int] = {}
        assigned: list[int] = []
        for layer in range(self.layers):
            key = (layer == 0, layer > first, self.kind(layer, signatures.get(layer)))
            if key not in known:
                known[key] = len(kinds)
                kinds.append(layer)
            assigned.append(known[key])
        return kinds, assigned

    def _first_trained(self) -> int:
        """The first layer that trains something; -1 where the layers' inputs want a gradient before it."""
        weights = self.weights
        graded = [item for item in weights.items if item.graded]
        if self.dims.inputs_require_grad or any(item.role in ("embedding", "position") for item in graded):
            return -1
        mine = (item for item in graded if item.name.startswith(weights.stack))
        return min((layer for item in mine for layer in item.layers or ()), default=self.layers)

    def without_dropout(self) -> Network:
        """The network outside of training."""
        return replace(self, dims=self.dims.without_dropout())


@dataclass(frozen=True, slots=True)
class EncoderDecoder(Network):
    """The decoder, with the encoder beside it, whose layers come first in the numbers; `audio`: it reads mel frames."""

    encoder: Network | None = None
    audio: bool = False

    @property
    def first(self) -> Network:
        """The encoder."""
        assert self.encoder is not None
        return self.encoder

    @property
    def layers(self) -> int:
        """Layers of both stacks."""
        return self.first.dims.layers + self.dims.layers

    def side(self, layer: int) -> tuple[Network, int]:
        """The stack that a layer belongs to, and its number there."""
        before = self.first.dims.layers
        return (self.first, layer) if layer < before else (self, layer - before)

    def kind(self, layer: int, weights: int | None) -> object:  # noqa: ARG002  (all layers of a stack are alike)
        """Which stack, and whether first or last in it."""
        encodes = layer < self.first.layers
        return encodes, layer in (0, self.first.layers), layer in (self.first.layers - 1, self.layers - 1)

    def without_dropout(self) -> EncoderDecoder:
        """Neither side has any."""
        return replace(self, dims=self.dims.without_dropout(), encoder=self.first.without_dropout())


def network(job: Job, model: Model) -> Network:
    """The network of a job: of two stacks where both of the model's are read."""
    return encoder_decoder(job, model) if is_encoder_decoder(model) else one_stack(job, model)


def one_stack(job: Job, model: Model, stack: str = "") -> Network:
    """A decoder, or an encoder whose layers are all there is; `stack` names the layers where they are another's."""
    dims, weights, options, images = resolve(job, model, stack)
    return Network(dims, weights, options, None if images is None else vision_dims(job, model, images))


def encoder_decoder(job: Job, model: Model) -> EncoderDecoder:
    """Both stacks; the encoder reads the job's sequences, the decoder the targets."""
    first, second = _stacks(model)
    encoder = one_stack(replace(job, sequence_length=source_length(job, model)), _view(model, first), first)
    decoding = replace(job, sequence_length=target_length(job, model))
    dims, weights, options, _ = resolve(decoding, _view(model, second), second)
    return EncoderDecoder(dims, weights, options, None, encoder, has_audio(model))


def _stacks(model: Model) -> tuple[str, str]:
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
