"""One layer of a decoder or an encoder: its modules, and the operations that a block puts in order.

What few models have is imported by the layers that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.labels import labelled
from ..tape.ops import dropout, gathered, scale, scattered
from .attention.attention import attention
from .attention.heads import AttentionInputs, heads_of
from .config_dims import RECURRENT
from .experts import feed_forward
from .norms import normed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Modules
    from ..tape.tensor import Tensor
    from .attention.heads import Heads
    from .dims import LayerDims
    from .layer_inputs import LayerInputs
    from .state import ReplayState
    from .weights import ModelWeights

    Block = Callable[["Layer", Tensor], Tensor]

PART = "residual stream"

MIXING = ("o", "ssm", "conv")
FEEDING = ("down", "expert_down", "shared_down")
"""The roles of the last projections of the two branches."""

SLOTS = {
    "0": "norm before attention",
    "1": "norm after attention",
    "2": "norm before MLP",
    "3": "norm after MLP",
}
"""What a derivation calls the norms of a layer."""


class Layer:
    """A layer of a kind. What `inputs` holds is made once for all layers; `extra` is this one's own input."""

    def __init__(
        self,
        dims: LayerDims,
        weights: ModelWeights,
        state: ReplayState,
        number: int,
        inputs: LayerInputs,
        extra: Tensor | None,
    ) -> None:
        slides = dims.windows[number] is not None
        self.dims = dims
        self.state = state
        self.modules: Modules = weights.layer(number, state)
        self.number = number
        self.type = dims.layer_types[number] if dims.layer_types else ""
        self.table = inputs.sliding_table if slides and inputs.sliding_table is not None else inputs.table
        self.mask = inputs.sliding_mask if slides else inputs.mask
        self.positions = inputs.positions
        self.shared = inputs.shared
        self.encoder_states = inputs.encoder_states if number in dims.images.cross_layers else None
        self.extra = extra
        sinks = self.modules.leaf("sinks") if dims.arch.sinks else None
        heads = heads_of(dims, number)
        self.heads: Heads = heads if sinks is None else heads._replace(sinks=sinks.weight)
        self.rope_type = dims.rope_types[number]
        self.mixing = any(self.modules.role(role) is not None for role in MIXING)
        self.recurrent = self.type == RECURRENT
        self.single = not (self.mixing and any(self.modules.role(role) is not None for role in FEEDING))

    @property
    def skipped(self) -> bool:
        """Whether the layer attends to images and there are none: it is left out."""
        return self.encoder_states is None and self.number in self.dims.images.cross_layers

    @labelled(by=("slot", SLOTS))
    def norm(self, x: Tensor, slot: int) -> Tensor:
        """The norm of a slot: before attention, after it, before the MLP, after it; an encoder's may lack one."""
        name = self.dims.arch.norms[slot]
        module = self.modules.leaf(name)
        if module is None and self.dims.arch.encoder:
            return x
        if module is None:
            found = self.modules.norms(self.dims.hidden)
            module = found[min(slot // 2, len(found) - 1)] if found else None
        return normed(x, module, self.dims.stream_rows, self.dims)

    def attention(self, x: Tensor) -> Tensor:
        """Attention and the dropout after it; under sequence parallelism over the tokens of all ranks."""
        ranks = self.dims.sequence_shards
        if ranks > 1:
            whole = self.plain_attention(gathered(x, x.n * ranks))
            return dropout(scattered(whole, x.n), self.dims.dropout.residual)
        y = self.plain_attention(x)
        return dropout(y, self.dims.dropout.residual)

    def plain_attention(self, x: Tensor) -> Tensor:
        """Attention without the dropout after it."""
        dims, modules = self.dims, self.modules
        if dims.arch.scores == "disentangled":
            from .attention.disentangled import disentangled

            return disentangled(x, modules, dims, self.shared)
        if dims.arch.scores == "relative":
            from .attention.relative import biased

            return biased(x, modules, dims, self.shared, self.mask)
        inputs = AttentionInputs(self.heads, self.table, self.mask, self.rope_type)
        latent = modules.leaf("kv_a_proj_with_mqa") is not None
        if dims.attention.latent and latent:
            from .attention.latent import latent_attention

            return latent_attention(x, modules, dims, inputs, self.number == 0)
        if self.recurrent or modules.role("o") is None or dims.attention.latent:
            from .mixers.mixer import mixer

            return mixer(x, modules, dims)
        return attention(x, modules, dims, self.state, inputs)

    def mlp(self, x: Tensor) -> Tensor:
        """The MLP and the dropout after it."""
        ranks = self.dims.sequence_shards
        if ranks > 1:
            whole = feed_forward(gathered(x, x.n * ranks), self.modules, self.dims)
            return dropout(scattered(whole, x.n), self.dims.dropout.residual)
        y = feed_forward(x, self.modules, self.dims)
        last = self.modules.leaf("mlp.post_mlp_layernorm")
        if last is not None and self.dims.attention.latent:
            y = normed(y, last, self.dims.rows, self.dims)
        return dropout(y, self.dims.dropout.residual)

    def scaled(self, x: Tensor) -> Tensor:
        """Granite's residual multiplier."""
        return scale(x) if self.dims.arch.residual_scale else x
