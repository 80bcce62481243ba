"""Model: a `config.json` together with the tensors it makes."""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tensor(NamedTuple):
    """A parameter, once for every layer it exists in.

    name      the state-dict name, `{0}` for the layer index (`model.layers.{0}.mlp.up_proj.weight`)
    shape     of one layer's tensor, torch order (a Linear's weight is [out_features, in_features])
    layers    the layer indices of its stack that have it; None for a tensor outside any stack
    stack     the stack's prefix (`model.layers.`), "" outside
    role      embedding, position, head, norm, q, k, v, qkv, o, mla (latent projections), gate, up, gate_up, down,
              router, expert_gate_up, expert_down, shared_gate, shared_up, shared_down, bias, ssm, conv, vision,
              audio, projector, other
    linear    whether it is the weight of an nn.Linear (or GPT-2 Conv1D): what PEFT targets and bnb quantises
    buffer    stored but never trained and not counted as a parameter
    frozen    a parameter that its class never trains (Whisper's sinusoids)
    """

    name: str
    shape: tuple[int, ...]
    layers: tuple[int, ...] | None
    stack: str
    role: str
    linear: bool
    buffer: bool = False
    frozen: bool = False

    @property
    def copies(self) -> int:
        """How many layers have it."""
        return 1 if self.layers is None else len(self.layers)

    @property
    def size(self) -> int:
        """Elements of one copy."""
        return prod(self.shape)

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.size * self.copies

    @property
    def module(self) -> str:
        """The module's dotted name, `.weight` or `.bias` cut off."""
        head, _, tail = self.name.rpartition(".")
        return head if tail in ("weight", "bias") else self.name

    @property
    def leaf(self) -> str:
        """The module's last name: `q_proj`."""
        return self.module.rpartition(".")[2]


class Shape(NamedTuple):
    """The dimensions of the (text) decoder, read from the config and checked against the inventory.

    norm        `rms` or `layer`;  mlp  `gated` (gate, up, down) or `plain` (up, down);  activation  as in config.json
    windows     sliding window in tokens per layer, None for full attention; layer kinds in `layer_types`
                (full_attention, sliding_attention, linear_attention, mamba, conv, chunked_attention ...)
    kv_lora_rank, qk_rope_head_dim ...   0 without multi-head latent attention
    sparse_layers   indices of layers whose MLP is a mixture of experts

    One entry a decoder layer (empty tuple: not known):
    layer_heads, layer_kv_heads, layer_head_dims   attention heads, KV heads and key width; 0 in a layer without
                       softmax attention
    kv_elements        elements that the layer caches for each token: kv_heads * (key + value width), the latent
                       (kv_lora_rank + qk_rope_head_dim) under multi-head latent attention, 0 in a layer that caches
                       nothing of its own (mamba, conv, linear attention, keys and values shared with another layer)
    conv_states, recurrent_states   elements per sequence of constant-size state (short convolution; SSM or linear
                       attention matrix), 0 elsewhere; the recurrent state is held in `state_dtype` where stated
    indexer_layers     layers with a sparse-attention indexer, each caching index_head_dim more per token
    cross_layers       layers with cross-attention; cross_tokens encoder positions it caches once per request
    positions_stated   whether the config states max_positions; else it is the default of the model type's class, which
                       is seldom the checkpoint's
    encoder_layers     layers of an encoder with a stack of its own (T5, BART, Whisper), 0 for decoder-only models
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    norm: str
    mlp: str
    activation: str
    max_positions: int | None
    layer_types: tuple[str, ...]
    windows: tuple[int | None, ...]
    experts: int
    experts_per_token: int
    moe_intermediate: int
    shared_intermediate: int
    sparse_layers: tuple[int, ...]
    q_lora_rank: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    softcap: bool
    layer_heads: tuple[int, ...] = ()
    layer_kv_heads: tuple[int, ...] = ()
    layer_head_dims: tuple[int, ...] = ()
    kv_elements: tuple[int, ...] = ()
    conv_states: tuple[int, ...] = ()
    recurrent_states: tuple[int, ...] = ()
    state_dtype: str | None = None
    index_head_dim: int = 0
    indexer_layers: tuple[int, ...] = ()
    cross_layers: tuple[int, ...] = ()
    cross_tokens: int = 0
    encoder_layers: int = 0
    positions_stated: bool = True


class Model(NamedTuple):
    """A model whose memory can be derived.

    id        the hub id or path as written;  source  where the config was found ("catalogue", "config.json at ...")
    config    the `config.json` fields;  defaults  what the text model's class gives the fields that it leaves out
    dtype  the checkpoint's own (`bfloat16`), None when unstated
    exact     False where the architecture is unknown and a llama-like table stands in, or its table is approximate
    named_quantization   the method that only the repository's name states (`gptq`, `bnb-nf4`); None where the name
              states none or `config` has a `quantization_config`
    listed    whether its own id is in the catalogue, which lists what is published under it
    namesake  why and for which model of the catalogue it is taken, where only its name tells; None elsewhere
    headless  whether it is loaded without a head (`AutoModel`), as encoders and embedding models are
    repository  the hub id of the model whose dimensions it has, which a folder's name or a copy's only tells
    """

    id: str
    source: str
    model_type: str
    config: dict[str, Any]
    dtype: str | None
    tensors: tuple[Tensor, ...]
    shape: Shape
    exact: bool = True
    named_quantization: str | None = None
    listed: bool = False
    namesake: str | None = None
    headless: bool = False
    defaults: Mapping[str, Any] = MappingProxyType({})
    repository: str = ""

    @property
    def parameters(self) -> int:
        """Exact number of parameters, tied weights once, buffers not counted."""
        return sum(tensor.elements for tensor in self.tensors if not tensor.buffer)


class UnknownModel(Exception):  # noqa: N818
    """A model that cannot be resolved; the message says why and what comes near."""


NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where a config holds that of its text decoder."""


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of the text decoder, whose own config may be nested."""
    for name in NESTED:
        nested = config.get(name)
        if isinstance(nested, dict):
            return {**config, **text_config(nested)}
    return config
