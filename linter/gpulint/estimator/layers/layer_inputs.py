"""What layers are handed beside the residual stream: data that the stages before them make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..adapters.linear import project
from ..tape.indexing import embedding, window
from ..tape.ops import add, scale
from .norms import NORMS, normed

if TYPE_CHECKING:
    from ..adapters.modules import Linear, Modules
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .attention.rope import Table
    from .dims import LayerDims


class EncoderStates(NamedTuple):
    """What decoder layers attend to beside the text.

    states  the images' features, `rows` of them;  mask  which of them each token sees
    seeing  0 for tokens that see none
    """

    states: Tensor
    rows: int
    mask: Tensor
    seeing: Tensor


class LayerInputs(NamedTuple):
    """What the model's forward function holds while the layers run.

    table, sliding_table   rotary tables: of all layers, or of the full and of the sliding ones
    mask, sliding_mask     masks of both
    extra           inputs of all layers, in Zamba 2 the embeddings
    shared          keys and values that layers take from others
    deepstack       features of images that the first layers add to their outputs
    encoder_states  features of images that some layers attend to
    """

    hidden: Tensor
    held: tuple[Tensor, ...]
    table: Table
    sliding_table: Table | None
    mask: Tensor | None
    sliding_mask: Tensor | None
    positions: Tensor
    extra: Tensor | None
    shared: dict[str, tuple[Tensor, Tensor]]
    deepstack: tuple[Tensor, ...] = ()
    encoder_states: EncoderStates | None = None

    def common(self) -> list[Tensor]:
        """Masks and rotary tables."""
        tables = [(table.cos, table.sin) for table in (self.table, self.sliding_table) if table is not None]
        masks = [mask for mask in (self.mask, self.sliding_mask) if mask is not None]
        return [*masks, *(x for pair in tables for x in pair)]


@dataclass(slots=True)
class StackInputs:
    """What the layers of a running stack of an encoder-decoder share.

    rows     tokens of the encoder;  states  what it made, for the decoder's layers;  states_mask  over those
    mask     of the stack itself;  bias  T5's biases by distance;  cross_bias  those of the encoder's output
    """

    rows: int
    states: Tensor | None = None
    states_mask: Tensor | None = None
    mask: Tensor | None = None
    bias: Tensor | None = None
    cross_bias: Tensor | None = None

    def with_gradients(self) -> tuple[Tensor, ...]:
        """What gets gradients from all layers."""
        found = (self.states, self.bias, self.cross_bias)
        return tuple(x for x in found if x is not None and x.node is not None)


def layer_tokens(tape: Tape, ids: Tensor, outside: Modules, dims: LayerDims) -> Tensor | None:
    """The second embedding, of all layers in one tensor; it is made before images take their places in the first."""
    table, projection = outside.leaf("embed_tokens_per_layer"), outside.leaf("per_layer_model_projection")
    if table is None or projection is None:
        return None
    return scale(embedding(tape, dims.rows, table.weight, projection.out, ids))


def layer_inputs(embeds: Tensor, tokens: Tensor, outside: Modules, dims: LayerDims) -> Tensor:
    """Inputs of all layers in one tensor: the second embedding plus a projection of the first."""
    projection = outside.require("per_layer_model_projection")
    width = projection.out
    projected = scale(project(embeds, projection, dims.rows))
    norm = outside.require("per_layer_projection_norm")
    projected = unreplaced_norm(projected, norm, dims.rows * width // norm.weight.n, dims)
    return scale(add(projected, tokens))


def unreplaced_norm(x: Tensor, module: Linear | None, rows: int, dims: LayerDims) -> Tensor:
    """A norm that Liger leaves as it is."""
    return NORMS[dims.arch.norm](x, module, rows) if dims.fused else normed(x, module, rows, dims)


def slice_of(extra: Tensor | None, dims: LayerDims) -> Tensor | None:
    """One layer's share of the inputs for all layers; Zamba's is the same for each."""
    return extra if extra is None or dims.arch.order == "zamba" else window(extra, extra.n // dims.layers)
