"""Decoder layers: in which order norm, attention and MLP meet the residual stream.

Local variables here live as long as those of the modelling code they follow; that is what decides when a temporary
goes. What few models have is imported by the layers that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tape.labels import labelled
from ..tape.ops import add, add_to, dropout, gathered, scale, scattered, to
from .attention.attention import attention
from .experts import feed_forward
from .norms import normed
from .setting import RECURRENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..adapters.modules import Modules
    from ..tape.tensor import Tensor
    from .attention.kernels import Heads
    from .embedding_stage import Stem
    from .setting import Setting

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
    """One decoder layer of a kind. What `base` holds is made once for all layers; `extra` is this one's own input."""

    def __init__(self, s: Setting, layer: int, base: Stem, extra: Tensor | None) -> None:
        slides = s.windows[layer] is not None
        self.s = s
        self.modules: Modules = s.modules(layer)
        self.number = layer
        self.first = layer == 0
        self.type = s.layer_types[layer] if s.layer_types else ""
        self.table = base.other if slides and base.other is not None else base.table
        self.mask = base.sliding if slides else base.full
        self.positions = base.positions
        self.shared = base.shared
        self.memory = base.memory if layer in s.crossing else None
        self.extra = extra
        sinks = self.modules.leaf("sinks") if s.traits.sinks else None
        self.at: Heads = s.at(layer) if sinks is None else s.at(layer)._replace(sinks=sinks.weight)
        self.turn = s.turn(layer)
        self.stores = s.stores(layer)
        self.sparse = s.sparsity(layer)
        self.mixing = any(self.modules.role(role) is not None for role in MIXING)
        self.recurrent = self.type == RECURRENT
        self.single = not (self.mixing and any(self.modules.role(role) is not None for role in FEEDING))

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output; eager probabilities go with the layer unless the model's loop has a name for them."""
        before = x.storage.tape.returned
        y = self.run(x)
        del before
        tape = x.storage.tape
        if tape.again and self.s.traits.held:
            tape.given_back = tape.returned
        if not self.s.traits.held or tape.again:
            tape.returned = None
        return y

    def run(self, x: Tensor) -> Tensor:
        """One branch where the layer has no more (state-space models, Nemotron-H), a framework's own layer, or two."""
        if self.single:
            branch = self.attention if self.mixing else self.mlp
            if self.s.residual_float:
                return add(to(x, 4), branch(self.norm(to(x, self.modules.named["norm"].weight.e), 0)))
            return add(x, branch(self.norm(x, 0)))
        from .litgpt import BLOCKS

        if self.s.framework.block and self.modules.role("down") is not None and not self.s.latent:
            return BLOCKS[self.s.framework.block](self, x)
        return ORDERS[self.s.order](self, x)

    @property
    def passed(self) -> bool:
        """Whether the layer attends to images and there are none: it is left out."""
        return self.memory is None and self.number in self.s.crossing

    @labelled(by=("slot", SLOTS))
    def norm(self, x: Tensor, slot: int) -> Tensor:
        """The norm of a slot: before attention, after it, before the MLP, after it; an encoder's may lack one."""
        name = self.s.traits.norms[slot]
        module = self.modules.leaf(name)
        if module is None and self.s.traits.encoder:
            return x
        if module is None:
            found = self.modules.norms(self.s.hidden)
            module = found[min(slot // 2, len(found) - 1)] if found else None
        return normed(x, module, self.s.stream, self.s)

    def attention(self, x: Tensor) -> Tensor:
        """Attention and the dropout after it."""
        if self.s.shards > 1:
            whole = self.plain_attention(gathered(x, x.n * self.s.shards))
            return dropout(scattered(whole, x.n), self.s.residual_dropout)
        y = self.plain_attention(x)
        return dropout(y, self.s.residual_dropout)

    def plain_attention(self, x: Tensor) -> Tensor:
        """Attention without the dropout after it."""
        if self.s.traits.scores == "disentangled":
            from .attention.disentangled import disentangled

            return disentangled(x, self.modules, self.s, self.shared)
        if self.s.traits.scores == "relative":
            from .attention.relative import biased

            return biased(x, self.modules, self.s, self.shared, self.mask)
        latent = self.modules.leaf("kv_a_proj_with_mqa") is not None
        if self.s.latent and latent:
            from .attention.latent import latent_attention

            return latent_attention(x, self.modules, self.s, self.table, self.mask, self.at, self.first)
        if self.recurrent or self.modules.role("o") is None or self.s.latent:
            from .mixers.mixer import mixer

            return mixer(x, self.modules, self.s)
        return attention(x, self.modules, self.s, self.table, self.mask, self.at, self.turn)

    def mlp(self, x: Tensor) -> Tensor:
        """The MLP and the dropout after it."""
        if self.s.shards > 1:
            whole = feed_forward(gathered(x, x.n * self.s.shards), self.modules, self.s)
            return dropout(scattered(whole, x.n), self.s.residual_dropout)
        y = feed_forward(x, self.modules, self.s)
        last = self.modules.leaf("mlp.post_mlp_layernorm")
        if last is not None and self.s.latent:
            y = normed(y, last, self.s.rows, self.s)
        return dropout(y, self.s.residual_dropout)

    def scaled(self, x: Tensor) -> Tensor:
        """Granite's residual multiplier."""
        return scale(x) if self.s.traits.residual_scale else x

    def pre(self, x: Tensor) -> Tensor:
        """Llama."""
        residual = x
        h = self.norm(x, 0)
        h = self.attention(h)
        h = add(residual, self.scaled(h))
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        return add(residual, self.scaled(h))

    def pre_keeping(self, x: Tensor) -> Tensor:
        """GPT-2: the attention's output has a name of its own to the end."""
        residual = x
        h = self.norm(x, 0)
        branch = self.attention(h)
        h = add(branch, residual)
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        return add(residual, h)

    def pre_stable(self, x: Tensor) -> Tensor:
        """StableLM: the normed input keeps its name too."""
        residual = x
        h = self.norm(x, 0)
        branch = self.attention(h)
        residual = add(residual, branch)
        other = self.norm(residual, 2)
        other = self.mlp(other)
        return add(residual, other)

    def pre_neox(self, x: Tensor) -> Tensor:
        """GPT-NeoX without parallel residual."""
        branch = self.norm(x, 0)
        branch = self.attention(branch)
        branch = add(branch, x)
        other = self.norm(branch, 2)
        other = self.mlp(other)
        return add(other, branch)

    def post_sum(self, x: Tensor) -> Tensor:
        """OPT-350M: a norm behind each sum."""
        residual = x
        h = self.attention(x)
        h = self.norm(add(residual, h), 0)
        residual = h
        h = self.mlp(h)
        return self.norm(add(residual, h), 2)

    def sandwich(self, x: Tensor) -> Tensor:
        """Gemma 2: a norm on both sides of each branch."""
        residual = x
        h = self.norm(x, 0)
        h = self.attention(h)
        h = self.norm(h, 1)
        h = add(residual, self.scaled(h))
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        h = self.norm(h, 3)
        return add(residual, self.scaled(h))

    def post(self, x: Tensor) -> Tensor:
        """OLMo 2: a norm behind each branch."""
        residual = x
        h = self.attention(x)
        h = self.norm(h, 1)
        h = add(residual, h)
        residual = h
        h = self.mlp(h)
        h = self.norm(h, 3)
        return add(residual, h)

    def normed_residual(self, x: Tensor) -> Tensor:
        """MiniMax: the residual is the normed input, and both are scaled."""
        x = self.norm(x, 0)
        h = self.attention(x)
        h = add(scale(x), scale(h))
        x = self.norm(h, 2)
        del h
        h = self.mlp(x)
        return add(scale(x), scale(h))

    def griffin(self, x: Tensor) -> Tensor:
        """RecurrentGemma: the normed input keeps its name to the end."""
        first = self.norm(x, 0)
        h = self.attention(first)
        residual = add(h, x)
        h = self.norm(residual, 2)
        h = self.mlp(h)
        h = add(h, residual)
        del first
        return h

    def mixed(self, x: Tensor) -> Tensor:
        """OLMo Hybrid: norms before the branches of linear attention, behind those of attention."""
        return self.pre(x) if self.recurrent else self.post(x)

    def parallel(self, x: Tensor) -> Tensor:
        """Phi, GPT-J: attention and MLP of the same normed input, then the residual."""
        residual = x
        h = self.norm(x, 0)
        branch = self.attention(h)
        other = self.mlp(h)
        return add(add(branch, other), residual)

    def parallel_residual(self, x: Tensor) -> Tensor:
        """Cohere, StableLM 2 12B: the residual joins the attention first."""
        residual = x
        h = self.norm(x, 0)
        branch = self.attention(h)
        other = self.mlp(h)
        return add(add(residual, branch), other)

    def parallel_norms(self, x: Tensor) -> Tensor:
        """GPT-NeoX: each branch has its own norm of the input."""
        branch = self.norm(x, 0)
        branch = self.attention(branch)
        other = self.norm(x, 2)
        other = self.mlp(other)
        return add(add(other, branch), x)

    def beside(self, x: Tensor) -> Tensor:
        """Falcon-H1: a state space and attention of the same normed input, each scaled, then the MLP."""
        from .mixers.mixer import mixer

        residual = x
        h = self.norm(x, 0)
        first = scale(mixer(h, self.modules, self.s))
        second = scale(self.attention(scale(h)))
        h = add(first, second)
        h = add(residual, h)
        residual = h
        h = self.norm(h, 2)
        h = self.mlp(h)
        return add(residual, h)

    def falcon(self, x: Tensor) -> Tensor:
        """Falcon: one or two norms of the input, the MLP's output takes the attention's in place."""
        residual = x
        first = self.norm(x, 0)
        second = self.norm(x, 2) if self.modules.leaf("ln_mlp") is not None else first
        branch = self.attention(first)
        other = feed_forward(second, self.modules, self.s)
        other = add_to(other, branch)
        return add(residual, dropout(other, self.s.residual_dropout))

    def falcon_serial(self, x: Tensor) -> Tensor:
        """Falcon-RW: attention, then the MLP."""
        first = self.norm(x, 0)
        branch = self.attention(first)
        residual = add(x, branch)
        second = self.norm(residual, 2)
        other = feed_forward(second, self.modules, self.s)
        return add(residual, dropout(other, self.s.residual_dropout))

    def zamba(self, x: Tensor) -> Tensor:
        """Zamba: a state space, and in hybrid layers a block that they share."""
        from .mixers.zamba import hybrid_layer

        return hybrid_layer(self, x)

    def crossing(self, x: Tensor) -> Tensor:
        """Mllama: layers that attend to images among Llama's."""
        if self.memory is None:
            return self.pre(x)
        from ..encoders.tiles import crossed_layer

        return crossed_layer(self, x)

    def shared_block(self, x: Tensor) -> Tensor:
        """Gemma 4: keys and values of an earlier layer, an input for every layer, experts beside the MLP."""
        from .sharing import shared_layer

        return shared_layer(self, x)

    def altup(self, x: Tensor) -> Tensor:
        """Gemma 3n: alternating updates of several streams."""
        from .altup import altup_layer

        return altup_layer(self, x)

    def bert(self, x: Tensor) -> Tensor:
        """BERT and its kin."""
        from .encoder import bert_layer

        return bert_layer(self, x)

    def distilbert(self, x: Tensor) -> Tensor:
        """DistilBERT."""
        from .encoder import distilbert_layer

        return distilbert_layer(self, x)

    def albert(self, x: Tensor) -> Tensor:
        """ALBERT."""
        from .encoder import albert_layer

        return albert_layer(self, x)

    def speech(self, x: Tensor) -> Tensor:
        """Wav2Vec2 and HuBERT."""
        from ..encoders.speech_frames import after

        return after(self, x)

    def speech_before(self, x: Tensor) -> Tensor:
        """The same with norms before the branches."""
        from ..encoders.speech_frames import before

        return before(self, x)


ORDERS: dict[str, Callable[[Layer, Tensor], Tensor]] = {
    "pre": Layer.pre,
    "pre_keeping": Layer.pre_keeping,
    "pre_stable": Layer.pre_stable,
    "pre_neox": Layer.pre_neox,
    "post_sum": Layer.post_sum,
    "sandwich": Layer.sandwich,
    "post": Layer.post,
    "normed_residual": Layer.normed_residual,
    "mixed": Layer.mixed,
    "griffin": Layer.griffin,
    "zamba": Layer.zamba,
    "shared": Layer.shared_block,
    "altup": Layer.altup,
    "crossing": Layer.crossing,
    "bert": Layer.bert,
    "distilbert": Layer.distilbert,
    "albert": Layer.albert,
    "speech": Layer.speech,
    "speech_before": Layer.speech_before,
    "parallel": Layer.parallel,
    "parallel_residual": Layer.parallel_residual,
    "parallel_norms": Layer.parallel_norms,
    "beside": Layer.beside,
    "falcon": Layer.falcon,
    "falcon_serial": Layer.falcon_serial,
}
