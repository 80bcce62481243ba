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

from ....upstream.serving import vllm
from ...terms import Product, total
from .items import items

if TYPE_CHECKING:
    from ....models.model import Model
    from ...terms import Count
    from .items import Items
    from .settings import Settings


class Encoder(NamedTuple):
    """What is alive while the tower runs, and what stays beside the text model.

    `high`: an attention backend that wants q, k and v apart copies them.
    """

    running: tuple[Product, ...]
    staying: tuple[Product, ...]
    high: int

    @property
    def peak(self) -> int:
        """Bytes while the tower runs."""
        return total(self.running)

    @property
    def kept(self) -> int:
        """Bytes beside the text model."""
        return total(self.staying)


class Copies(NamedTuple):
    """How many times an instant of a block holds H, H / t and I."""

    states: int
    shared: int = 0
    inner: int = 0

    def size(self, states: float, inner: float, tensor: int) -> float:
        """Their bytes, of `states` for H and `inner` for I."""
        return self.states * states + self.shared * states / tensor + self.inner * inner


def encoder(model: Model, settings: Settings, element: float, tensor: int) -> Encoder | None:
    """The tower's part of the profile run; None without one, and for a family that is not written down here."""
    given = items(model, settings)
    config = model.config.get("vision_config")
    if given is None or not isinstance(config, dict):
        return None
    version, family, patches = settings.version, model.model_type, (given.patches, "patches")
    states, inner = element * given.patches * given.hidden, element * given.patches * given.inner / tensor
    widest = max(
        (
            *attention(family, tensor, version),
            *feed_forward(family, tensor, version, eager=settings.given.enforce_eager),
        ),
        key=lambda copies: copies.size(states, inner, tensor),
    )
    pixels = Product("pixels of the largest items", element, (patches, given.pixels))
    outputs = (given.tokens, "tokens")
    running = (
        Product("vision tower: hidden states of a block", element, (patches, widest.states, given.hidden)),
        Product("vision tower: parts of its attention", element, (patches, widest.shared, given.hidden), tensor),
        Product("vision tower: parts of its MLP", element, (patches, widest.inner, given.inner), tensor),
        pixels,
        Product("vision tower: cosines and sines", element, (_ROTARY, patches, given.head_dim)),
        Product("vision tower: DeepStack's features", element, (outputs, given.width - given.out)),
    )
    staying = (
        pixels,
        Product("vision tower: outputs", element, (outputs, given.width)),
        Product("vision tower: outputs, as long as the budget", element, _scattered(given, version)),
    )
    return Encoder(running, staying, total(running) + round(3 * states / tensor))


_ROTARY = 2
"""Cosines and sines, each of half a head, and the copies that collect those of all items (`rot_pos_emb`)."""


def attention(family: str, tensor: int, version: str | None) -> tuple[Copies, ...]:
    """The widest instants of a block's attention.

    since 0.15   3 H + 8 a H: q k v, a copy of q and k, both rotated, the output; Qwen2-VL so since 0.13
    0.13, 0.14   3 H + 6 a H: the rotation reads q and k where they lie
    0.11, 0.12   2 H + 13 a H: it copies them to float32 (4), writes float32 (4) and casts (2); Qwen2-VL 15 a
    0.9, 0.10    2 H + 11 a H: q, k and v are copied (3), and one at a time is rotated in float32 (5)
    before       2 H + 14 a H: the same by torch operations (8), as cards without the flash-attn package do

    Ranks sum the projection into a second tensor (H). Those that gather q, k and v first, as Qwen2-VL does and
    Qwen2.5-VL did before 0.11, hold them whole twice: 8 H + 3 a H. Qwen3-VL keeps its positions (H).
    Source: `Qwen2VisionAttention`, `Qwen2_5_VisionAttention` `forward`, `split_qkv`; `apply_rotary_pos_emb_vision`.
    """
    first, kept = family == "qwen2_vl", _positions(family)
    if vllm.ROTATES_IN_PLACE.at(version):
        copied = first or vllm.ROTATES_COPY.at(version)
        widest = Copies(kept + 3 + (tensor > 1), 8 if copied else 6)
    elif vllm.ROTATES_COPIES.at(version):
        widest = Copies(kept + 2, 15 if first else 13)
    else:
        widest = Copies(kept + 2, 11 if vllm.ROTATES_BY_TURNS.at(version) else 14)
    if tensor > 1 and (first or vllm.GATHERS_VISION_HEADS.at(version)):
        return widest, Copies(kept + 8, 3)
    return (widest,)


def feed_forward(family: str, tensor: int, version: str | None, *, eager: bool = False) -> tuple[Copies, ...]:
    """The widest instants of a block's MLP; ranks sum its projection into a second tensor (H).

    Qwen3-VL     3 H + 2 I, GELU in a tensor of its own
    Qwen2-VL     3 H + 3 I: QuickGELU by torch operations, 2 I by its kernel, which runs where nothing is compiled
    Qwen2.5-VL   5 H + 3 I: the branch, its sum with the states and the norm stay, the doubled projection and the
                 product; the kernel of eager runs adds in place (3 H); until 0.14 the activation's own torch
                 operations hold 4 H + 4 I; before 0.10.1 gate, up and product were three tensors: 4 H + 3 I

    Source: `Qwen3_VisionMLP`, `Qwen2VisionMLP`, `Qwen2_5_VisionMLP`, `Qwen2_5_VisionBlock`; custom_op.py.
    """
    summed = int(tensor > 1)
    if family != "qwen2_5_vl":
        kept = _positions(family) + 3
        wide = 2 if family != "qwen2_vl" or eager else 3
        return Copies(kept, inner=wide), Copies(kept + 1 + summed, inner=1)
    if not vllm.JOINED_GATE_UP.at(version):
        return (Copies(4 + summed, inner=3),)
    if eager:
        return (Copies(3 + summed, inner=3),)
    return Copies(5 + summed, inner=3), Copies(4, inner=3 if vllm.FUSED_ACTIVATION.at(version) else 4)


def _positions(family: str) -> int:
    """H of the positions that the tower adds to its patches and keeps while the blocks run."""
    return 0 if family in ("qwen2_vl", "qwen2_5_vl") else 1


def _scattered(given: Items, version: str | None) -> tuple[Count, ...]:
    """Elements of the copies, as long as the encoder's budget, that 0.11 and 0.12 made of outputs shorter than it."""
    if not vllm.SCATTERS_OUTPUTS.at(version) or given.tokens >= given.number * given.budget:
        return (0,)
    return (given.number, "items"), (given.budget, "tokens"), given.width
