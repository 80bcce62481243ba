"""How the layers of a model type are written: which norm, which rope, in which order.

`arch_spec.json` holds one object per model type with what differs from Llama, read from the modelling code of
transformers 5.23; an empty one says that nothing does. A type of `families` in `aliases.json` has that of its family. A
model type without one is taken for Llama with the modules that its inventory has, and `unmodeled.py` says so.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..source.tables import read_table
from .model import text_config
from .tables import family_of

if TYPE_CHECKING:
    from .model import Model


class ArchSpec(NamedTuple):
    """What the modelling code of a model type does.

    order         a name of `blocks.BLOCKS`
    norm          a name of `norms.NORMS`;  head_norm that of queries and keys
    norm_at       where queries and keys are normed: `heads` (after all projections), `first` (each before the next
                  projection), `whole` (the same, over whole rows), `rope` (behind the rotary embedding)
    norms         last names of the modules: before attention, after it, before the MLP, after it
    qkv           how one projection is taken apart: split, chunk, slices, heads, multi_query, grouped
    rope          a name of `rope.ROPES`;  nope_layers  layers without one: `full`, those of full attention beside
                  sliding ones, or `list`, those that `no_rope_layers` names
    wide_table    whether cos and sin stay in float32;  tables  whether sliding layers have tables of their own
    each_row      whether every sequence has a table of its own (positions of images in three directions)
    rotary        the class's default for the part of a head that is turned;  local_rotary  that of sliding layers where
                  it is another
    scores        eager attention: softmax in `float32` and back, `native`, `plain` (never
                  cast back), `upcast`, `biased`, `alibi`, `disentangled`, `relative`, `shifted` (by the maximum)
    mlp           for gate and up in one projection: `up_first` multiplies up by act(gate)
    positions     `table` (learned), `rows` (looked up for every sequence) or `none`
    embed_scale   where embeddings are multiplied by a number: in the `module`, in the `model` behind it, or nowhere
    residual_scale, logits_scale   whether branches and logits are multiplied by a number
    logits_float  whether the model itself makes the logits float32 and drops the narrow ones
    softcap       the config field that caps attention scores, "" where the model has none
    bounded       whether masked scores of eager attention are bounded from below (`torch.max`)
    masked        whether the model always makes a 4-D mask;  sinks  whether attention has sink logits
    direct        whether torch's sdpa is called without Transformers' repeating of keys
    held          whether the model's loop has a name for a layer's eager probabilities until the next layer is through
    collects      whether the outputs of all layers live until the stack has run
    slopes        whether the mask carries ALiBi's slopes for every head
    attention_dropout, residual_dropout, embedding_dropout, activation_dropout   config fields with their defaults;
                  head_dropout  that before a classifier where it is not the residual's;  mlp_dropout  that of the
                  MLP's gated product
    head_activation   that of the dense layer before a task's head where it is not the model's
    router        softmax, chosen (softmax over the chosen), sigmoid and softmax_wide (of float32 logits),
                  softmax_narrow (in the logits' own width), sigmoid_late, softmax_forced (float32 under autocast too)
    weights       width of the routing weights: `wide` (float32), `narrow` (that of the logits) or `summed` (so, but
                  float32 under autocast, whose sums are, by which they are divided out of place)
    gate          gating of experts: `default` or `clamped` (gpt-oss)
    output_gate   what attention's output is gated with: half of the `query` projection, a
                  `projection` of its own, one number for each of the `heads`, a float32 `softplus`, or nothing
    mixer         a name of `mixer.MIXERS` for layers that do not attend, "" where they are not derived
    indexer       the rotary embedding of sparse attention's indexer, "" where the model has none
    own_pairs     whether layers that share a block have low-rank pairs of their own beside its projections
    residual_float   whether the residual stream is float32 unless `residual_in_fp32` says no
    scan_groups, scan_chunk   the class's defaults for a state space's groups and chunk
    liger         what Liger replaces: rope, norm (norm_copy: not in place), head_norm, mlp, experts (run as stock ones
                  here), loss, cross_entropy
    liger_chunk   how many times the usual budget a chunk of its fused loss may take
    encoder       whether every token sees every other one, behind embeddings as BERT makes them
    final         the norm behind the layers: the `last` outside them, another by name, or none
    pooler        what the dense layer of a classification head is followed by: `tanh`, the model's activation (`act`),
                  or that and a norm (`normed`)
    logits_bias   whether a buffer is added to the logits, in the width of the weights
    shared_loss   whether masked language modelling calls the shared loss, which makes logits float32
    waves         whether the model reads samples of sound;  returns_features  whether it hands on what its projection
                  normed, and not what its convolutions made
    reused        whether layers of a group (`num_hidden_groups`) are one and the same
    own_bias      whether every layer of a stack has a table of biases by distance of its own
    shared        shared experts: "", `after` or `before` (with a sigmoid gate) the routed ones, `scaled` (before them,
                  whose sum is multiplied by a number)
    value_scale   whether values are multiplied by a number
    """

    order: str = "pre"
    norm: str = "rms"
    head_norm: str = ""
    norm_at: str = "heads"
    norms: tuple[str, str, str, str] = ("input_layernorm", "", "post_attention_layernorm", "")
    qkv: str = "split"
    rope: str = "half"
    nope_layers: str = ""
    wide_table: bool = False
    tables: bool = False
    each_row: bool = False
    rotary: float = 1.0
    local_rotary: float = 0.0
    scores: str = "float32"
    mlp: str = "gate_first"
    activation: str = ""
    positions: str = "none"
    embed_scale: str = ""
    embed_norm: str = ""
    residual_scale: bool = False
    logits_scale: bool = False
    logits_float: bool = False
    softcap: str = ""
    logits_softcap: bool = False
    query_scale: bool = False
    sinks: bool = False
    bounded: bool = False
    masked: bool = False
    direct: bool = False
    collects: bool = False
    slopes: bool = False
    held: bool = False
    attention_dropout: tuple[str, float] = ("attention_dropout", 0.0)
    residual_dropout: tuple[str, float] = ("", 0.0)
    embedding_dropout: tuple[str, float] = ("", 0.0)
    head_dropout: tuple[str, float] = ("", 0.0)
    activation_dropout: tuple[str, float] = ("activation_dropout", 0.0)
    mlp_dropout: tuple[str, float] = ("", 0.0)
    head_activation: str = ""
    router: str = "softmax"
    weights: str = "wide"
    gate: str = "default"
    shared: str = ""
    value_scale: bool = False
    output_gate: str = ""
    mixer: str = ""
    indexer: str = ""
    own_pairs: bool = False
    residual_float: bool = False
    scan_groups: int = 1
    scan_chunk: int = 256
    liger: tuple[str, ...] = ()
    liger_chunk: int = 1
    encoder: bool = False
    final: str = "last"
    pooler: str = "tanh"
    logits_bias: bool = False
    shared_loss: bool = False
    own_bias: bool = False
    reused: bool = False
    waves: bool = False
    returns_features: bool = False


@cache
def _table() -> dict[str, dict[str, Any]]:
    return read_table(__file__, "arch_spec.json")


def _row(model_type: str) -> dict[str, Any] | None:
    """The row of a model type or of its family; that of a text decoder is named with or without _text."""
    names = family_of(model_type), family_of(model_type.removesuffix("_text"))
    return next((_table()[name] for name in names if name in _table()), None)


def _entry(model_type: str) -> dict[str, Any]:
    """A row of the table on top of the one that it is `like`."""
    found = dict(_row(model_type) or {})
    like = found.pop("like", None)
    return {**_entry(like), **found} if like is not None else found


def known(model_type: str, config: dict[str, Any]) -> bool:
    """Whether the table has the model type, or the text decoder's own."""
    return any(_row(name) is not None for name in (model_type, str(config.get("model_type"))))


def arch_spec(model_type: str, config: dict[str, Any], norm: str) -> ArchSpec:
    """The ArchSpec of a model type; `norm` (`rms` or `layer`) is what the inventory says where the table is silent.

    `when` entries of the table apply where a config field has a value: `{"parallel_attn=false": {...}}`.
    """
    found = _entry(model_type) or _entry(str(config.get("model_type")))
    for condition, changes in (found.pop("when", None) or {}).items():
        key, _, wanted = condition.partition("=")
        if json.dumps(config.get(key)) == wanted:
            found.update(changes)
    if not found and norm == "layer":
        found["norm"] = "layer"
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    return ArchSpec(**values)


def reuses_layers(model: Model) -> bool:
    """Whether layers of a group are one and the same (ALBERT)."""
    return arch_spec(model.model_type, text_config(model.config), model.shape.norm).reused
