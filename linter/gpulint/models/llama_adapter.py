"""LLaMA-Adapter as LitGPT builds it: a learned prompt beside the keys of each layer, and what version 2 trains more.

Elements with prompt length P, hidden size h and H heads, in each layer from the third on:

    v1    P h + H                      the prompt's embedding, a gate for each head
    v2    v1, 2 x outputs of every linear layer, the head's too (shift and scale), and all norms

Source: litgpt/adapter.py and adapter_v2.py 0.5.13 (`adapter_filter`), alike since lit-gpt 8641822.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lora_targets import NotModelled

if TYPE_CHECKING:
    from .model import Model, Tensor

FIRST_VERSION, SECOND_VERSION = "llama-adapter", "llama-adapter-v2"
TYPES = (FIRST_VERSION, SECOND_VERSION)
"""`Adapter.type` of the two."""

PROMPT, START = 10, 2
"""`adapter_prompt_length` and `adapter_start_layer` of litgpt's Config; no flag changes them."""

_INNER = frozenset({"input_layernorm", "ln_attn", "ln_mlp", "pre_feedforward_layernorm"})
"""`norm_1` and `norm_2` in the names of Transformers; without the last of them `post_attention_layernorm` is one."""


def added(model: Model, kind: str) -> tuple[Tensor, ...]:
    """The tensors of an adapter of type `kind`, by the names of Transformers where they belong to a module of it.

    Raises NotModelled for a model without attention.
    """
    from .model import Tensor

    shape = model.shape
    stack = next((tensor.stack for tensor in model.tensors if tensor.role in ("o", "down")), None)
    if stack is None:
        raise NotModelled(f"{model.id} has no attention to which LitGPT's LLaMA-Adapter can be added")
    layers = tuple(range(START, shape.layers))
    found = []
    if layers:
        at = f"{stack}{{0}}.attn."
        found.append(Tensor(f"{at}adapter_wte.weight", (PROMPT, shape.hidden), layers, stack, "adapter", False))
        found.append(Tensor(f"{at}gating_factor", (shape.heads,), layers, stack, "adapter", False))
    if kind == SECOND_VERSION:
        for tensor in model.tensors:
            if tensor.linear:
                for part in ("adapter_bias", "adapter_scale"):
                    name = f"{tensor.module}.{part}"
                    found.append(tensor._replace(name=name, shape=tensor.shape[:1], role="adapter", linear=False))
    return tuple(found)


def trains(tensor: Tensor, model: Model, kind: str) -> bool:
    """Whether version 2 trains a tensor of the base: norms before attention and MLP, and the last one."""
    if kind != SECOND_VERSION or tensor.buffer:
        return False
    if tensor.layers is None:
        return tensor.role == "norm"
    names = {each.leaf for each in model.tensors if each.role == "norm"}
    own = _INNER if "pre_feedforward_layernorm" in names else {*_INNER, "post_attention_layernorm"}
    return tensor.leaf in own
