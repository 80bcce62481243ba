"""How the layers of a model type are written: which norm, which rope, in which order.

`traits.json` holds one object per model type with what differs from Llama, read from the modelling code of
transformers 5.23. A model type without one is taken for Llama with the modules that its inventory has.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, NamedTuple


class Traits(NamedTuple):
    """What the modelling code of a model type does.

    order         pre (norm before attention and MLP), post (after), sandwich (both), parallel (attention and MLP of
                  one input), post_residual (BLOOM: residuals inside the branches)
    norm          a name of `norms.NORMS`;  head_norm that of queries and keys
    norm_at       `heads` after the split into heads, `whole` before, `rope` after the rotary embedding
    norms         last names of the modules: before attention, after it, before the MLP, after it
    qkv           how one projection is taken apart: split, slices, heads (per-head select), grouped (Falcon)
    rope          half, half_cast, half_wide, interleaved, pairs, chunks, complex, none
    scores        softmax in `float32` and back, or `native`
    mlp           for gate_up in one: `up_first` multiplies up by act(gate)
    keeps         locals of the layer that stay alive to its end: `attention`
    positions     table (learned), alibi, none
    embed_scale, residual_scale, logits_scale   whether embeddings, branches, logits are multiplied by a number
    attention_dropout, residual_dropout, embedding_dropout   config fields with their defaults
    activation    the class's default, where the config states none
    router        softmax_topk, topk_softmax, sigmoid ...
    """

    order: str = "pre"
    norm: str = "rms"
    head_norm: str = ""
    norm_at: str = "heads"
    norms: tuple[str, str, str, str] = ("input_layernorm", "", "post_attention_layernorm", "")
    final_norm: str = ""
    qkv: str = "split"
    rope: str = "half"
    rotary: tuple[Any, ...] = ()
    scores: str = "float32"
    layout: str = "heads"
    mlp: str = "gate_first"
    activation: str = ""
    keeps: str = ""
    positions: str = "none"
    embed_scale: bool = False
    embed_norm: str = ""
    residual_scale: bool = False
    logits_scale: bool = False
    softcap: str = ""
    logits_softcap: bool = False
    query_scale: bool = False
    sinks: bool = False
    attention_dropout: tuple[str, float] = ("attention_dropout", 0.0)
    residual_dropout: tuple[str, float] = ("", 0.0)
    embedding_dropout: tuple[str, float] = ("", 0.0)
    router: str = "softmax"
    weights: str = "wide"
    gate: str = "default"
    shared: str = ""


@cache
def _table() -> dict[str, dict[str, Any]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traits.json")
    with open(path, encoding="utf-8") as file:
        table: dict[str, dict[str, Any]] = json.load(file)
    return table


def traits(model_type: str, config: dict[str, Any], norm: str) -> Traits:
    """The traits of a model type; `norm` (`rms` or `layer`) is what the inventory says where the table is silent.

    `when` entries of the table apply where a config field has a value: `{"parallel_attn=false": {...}}`.
    """
    found = dict(_table().get(model_type) or {})
    like = found.pop("like", None)
    if like is not None:
        found = {**_table()[like], **found}
    for condition, changes in (found.pop("when", None) or {}).items():
        key, _, wanted = condition.partition("=")
        if json.dumps(config.get(key)) == wanted:
            found.update(changes)
    if not found and norm == "layer":
        found["norm"] = "layer"
    return Traits(**{key: tuple(value) if isinstance(value, list) else value for key, value in found.items()})
