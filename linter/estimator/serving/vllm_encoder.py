"""What vLLM's profile run takes for the vision tower of Qwen's models.

The run puts the largest item through the tower, eagerly, and then the text model, with what went in and what came out
still there. One kind of item is profiled: that of most tokens, images before videos where they have as many.

P patches of all items, H = e P h bytes of their hidden states, I = e P f / t of an MLP's width f, t tensor-parallel
ranks, a = 1 / t. What a function was given lives until it returns, so that the widest instants hold:

    attention   states, their norm, q k v, what the rotation reads and writes, attention's output and its projection
    MLP         the block's states, the sum, its norm, the projections and what the activation makes of them
    beside      pixel values, positions (Qwen3-VL adds them, and keeps them), cosines and sines, DeepStack's features

Source: vllm 0.8.5, 0.9.2, 0.10.0, 0.10.1, 0.11.2, 0.13.0, 0.14.0, 0.15.1, 0.20.0, 0.24.0, 0.28.0, of each
v1/worker/gpu_model_runner.py `profile_run` and model_executor/models/{qwen2_vl,qwen2_5_vl,qwen3_vl}.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...versions import older
from .vllm_items import items

if TYPE_CHECKING:
    from ...models.model import Model
    from .vllm_items import Items
    from .vllm_settings import Settings


class Encoder(NamedTuple):
    """Bytes while the tower runs (`peak`), and those that stay beside the text model (`kept`).

    `high`: an attention backend that wants q, k and v apart copies them.
    """

    peak: int
    high: int
    kept: int


def encoder(model: Model, settings: Settings, element: float, tensor: int) -> Encoder | None:
    """The tower's part of the profile run; None without one, and for a family that is not written down here."""
    given = items(model, settings)
    config = model.config.get("vision_config")
    if given is None or not isinstance(config, dict):
        return None
    version = settings.version
    states = element * given.patches * given.hidden
    inner = element * given.patches * given.inner / tensor
    widest = max(
        attention(model.model_type, states, tensor, version),
        feed_forward(model.model_type, states, inner, tensor, version, eager=settings.eager),
    )
    pixels = element * given.patches * given.pixels
    turned = _ROTARY * given.patches * given.head_dim * element
    outputs = element * given.tokens * given.width
    deep = outputs * (given.width - given.out) / given.width
    peak = round(widest + pixels + turned + deep)
    kept = round(pixels + outputs + _scattered(given, element, version))
    return Encoder(peak, peak + round(3 * states / tensor), kept)


_ROTARY = 2
"""Cosines and sines, each of half a head, and the copies that collect those of all items (`rot_pos_emb`)."""


def attention(family: str, states: float, tensor: int, version: str | None) -> float:
    """Bytes at the widest instant of a block's attention, `states` the bytes of its hidden states.

    since 0.15   3 H + 8 a H: q k v, a copy of q and k, both rotated, the output; Qwen2-VL so since 0.13
    0.13, 0.14   3 H + 6 a H: the rotation reads q and k where they lie
    0.11, 0.12   2 H + 13 a H: it copies them to float32 (4), writes float32 (4) and casts (2); Qwen2-VL 15 a
    0.9, 0.10    2 H + 11 a H: q, k and v are copied (3), and one at a time is rotated in float32 (5)
    before       2 H + 14 a H: the same by torch operations (8), as cards without the flash-attn package do

    Ranks sum the projection into a second tensor (H). Those that gather q, k and v first, as Qwen2-VL does and
    Qwen2.5-VL did before 0.11, hold them whole twice: 8 H + 3 a H. Qwen3-VL keeps its positions (H).
    Source: `Qwen2VisionAttention`, `Qwen2_5_VisionAttention` `forward`, `split_qkv`; `apply_rotary_pos_emb_vision`.
    """
    share = states / tensor
    first = family == "qwen2_vl"
    summed = states if tensor > 1 else 0.0
    if older(version, "0.11"):
        widest = 2 * states + (14 if older(version, "0.9") else 11) * share
    elif older(version, "0.13"):
        widest = 2 * states + (15 if first else 13) * share
    else:
        copied = first or not older(version, "0.15")
        widest = 3 * states + summed + (8 if copied else 6) * share
    if tensor > 1 and (first or older(version, "0.11")):
        widest = max(widest, 8 * states + 3 * share)
    return widest + _positions(family, states)


def feed_forward(
    family: str, states: float, inner: float, tensor: int, version: str | None, *, eager: bool = False
) -> float:
    """Bytes at the widest instant of a block's MLP, `inner` the bytes of its width on one rank.

    Qwen3-VL     3 H + 2 I, GELU in a tensor of its own
    Qwen2-VL     3 H + 3 I: QuickGELU by torch operations, 2 I by its kernel, which runs where nothing is compiled
    Qwen2.5-VL   5 H + 3 I: the branch, its sum with the states and the norm stay, the doubled projection and the
                 product; the kernel of eager runs adds in place (3 H); until 0.14 the activation's own torch
                 operations hold 4 H + 4 I; before 0.10.1 gate, up and product were three tensors: 4 H + 3 I

    Source: `Qwen3_VisionMLP`, `Qwen2VisionMLP`, `Qwen2_5_VisionMLP`, `Qwen2_5_VisionBlock`; custom_op.py.
    """
    summed = states if tensor > 1 else 0.0
    if family == "qwen2_vl":
        return 3 * states + max((2 if eager else 3) * inner, inner + states + summed)
    if family != "qwen2_5_vl":
        return _positions(family, states) + 3 * states + max(2 * inner, inner + states + summed)
    if older(version, "0.10.1"):
        return 4 * states + 3 * inner + summed
    if eager:
        return 3 * states + 3 * inner + summed
    return max(5 * states + 3 * inner + summed, 4 * states + (4 if older(version, "0.15") else 3) * inner)


def _positions(family: str, states: float) -> float:
    """Bytes of the positions that the tower adds to its patches and keeps while the blocks run."""
    return 0.0 if family in ("qwen2_vl", "qwen2_5_vl") else states


def _scattered(given: Items, element: float, version: str | None) -> float:
    """Bytes of the copies that 0.11 and 0.12 made of outputs shorter than the encoder's budget, each as long as it."""
    if older(version, "0.11") or not older(version, "0.13") or given.tokens >= given.number * given.budget:
        return 0.0
    return element * given.number * given.budget * given.width
