"""The layers of a text decoder, told apart by the tensors they hold."""

from __future__ import annotations

from typing import NamedTuple

from .fields import Fields
from .model import Tensor

OTHER_PARTS = ("vision", "audio", "projector")
"""Roles of tensors that are no part of the text decoder."""

CACHELESS = ("linear_attention", "mamba", "conv", "mlp", "moe")
"""Kinds of layers that cache nothing per token."""

_CROSS = ("cross_attn.", "encoder_attn.", "crossattention.", "layer.1.EncDecAttention.")


class Layer:
    """The tensors of one decoder layer, by role and by the last name of their module.

    `cross` says whether it has cross-attention, `indexer` a sparse-attention indexer, `latents` counts its
    compressed key-value projections. Cross-attention beside self-attention is left out of `roles`.
    """

    def __init__(self, tensors: list[Tensor], start: int) -> None:
        """`start` is where the name inside the layer begins."""
        self.roles: dict[str, Tensor] = {}
        self.leaves: dict[str, Tensor] = {}
        self.cross = False
        self.indexer = False
        self.latents = 0
        for tensor in tensors:
            inner = tensor.name[start:]
            if inner.startswith(_CROSS):
                self.cross = True
                if not inner.startswith("cross_attn."):
                    continue
            if ".indexer." in inner:
                self.indexer = True
                continue
            if tensor.role not in ("norm", "bias", "other"):
                self.roles.setdefault(tensor.role, tensor)
            self.leaves.setdefault(tensor.leaf, tensor)
            self.latents += inner.endswith("kv_a_proj_with_mqa.weight")

    def out_features(self, role: str) -> int:
        """Output width of the projection with this role, 0 without one."""
        tensor = self.roles.get(role)
        return tensor.shape[0] if tensor else 0

    def in_features(self, role: str) -> int:
        """Input width of the projection with this role, 0 without one."""
        tensor = self.roles.get(role)
        return tensor.shape[-1] if tensor else 0

    @property
    def attends(self) -> bool:
        """Whether it has attention of any kind."""
        return bool({"mla", "q", "qkv"} & self.roles.keys())

    @property
    def gated(self) -> bool:
        """Whether its MLP has a gate: beside the up projection, or fused with it and so twice as wide as the down."""
        if {"gate", "gate_up", "shared_gate"} & self.roles.keys():
            return True
        up, down = self.roles.get("expert_gate_up"), self.roles.get("expert_down")
        if up is None or down is None:
            return False
        return 2 * max(down.size, 1) == up.size or len(up.shape) == 2


class Heads(NamedTuple):
    """Attention of one layer: heads, KV heads, width of a key, elements cached per token."""

    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    elements: int = 0


def decoder_stack(tensors: list[Tensor]) -> tuple[str, int]:
    """The prefix of the decoder's stack, and the layers of an encoder stack beside it."""
    sizes: dict[str, int] = {}
    lengths: dict[str, int] = {}
    for tensor in tensors:
        if tensor.layers is not None and tensor.role not in OTHER_PARTS:
            sizes[tensor.stack] = sizes.get(tensor.stack, 0) + tensor.elements
            lengths[tensor.stack] = max(lengths.get(tensor.stack, 0), max(tensor.layers, default=-1) + 1)
    if not sizes:
        return "", 0
    decoders = [stack for stack in sizes if "decoder" in stack]
    encoders = [stack for stack in sizes if "encoder" in stack and "decoder" not in stack]
    chosen = max(decoders if decoders and encoders else sizes, key=lambda stack: sizes[stack])
    return chosen, max((lengths[stack] for stack in encoders if stack != chosen), default=0)


def layers_of(tensors: list[Tensor], stack: str) -> list[Layer]:
    """The layers of one stack; layers that hold the same tensors are one object."""
    members = [tensor for tensor in tensors if tensor.layers and tensor.stack == stack]
    count = max((tensor.layers[-1] + 1 for tensor in members if tensor.layers), default=0)
    held: list[list[int]] = [[] for _ in range(count)]
    for at, tensor in enumerate(members):
        for i in tensor.layers or ():
            held[i].append(at)
    made: dict[tuple[int, ...], Layer] = {}
    layers = []
    for indices in held:
        key = tuple(indices)
        if key not in made:
            made[key] = Layer([members[at] for at in indices], len(stack) + len("{0}."))
        layers.append(made[key])
    return layers


def number(value: object) -> int:
    """A config field as a count: the largest of a list, 0 for anything that is no count."""
    if isinstance(value, list):
        value = max((item for item in value if isinstance(item, (int, float))), default=0)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1 << 48 else 0


def layer_heads(layer: Layer, kind: str, heads: int, head_dim: int, v_head_dim: int) -> Heads:
    """Heads of one layer with keys and values of its own: the widths of its projections over the width of a head."""
    fused = "qkv" in layer.roles and "q" not in layer.roles
    if kind in CACHELESS or not (fused or "q" in layer.roles) or not head_dim:
        return Heads()
    if fused:
        kv_heads = max(0, layer.out_features("qkv") // head_dim - heads) // 2
        return Heads(heads, kv_heads, head_dim, kv_heads * (head_dim + v_head_dim))
    norm = layer.leaves.get("q_norm") or layer.leaves.get("q_layernorm")
    if norm is not None and len(norm.shape) == 1 and norm.shape[0] < layer.out_features("q"):
        if head_dim != norm.shape[0]:
            v_head_dim = norm.shape[0]
        head_dim = norm.shape[0]
    own = layer.in_features("o") // v_head_dim if "o" in layer.roles else layer.out_features("q") // head_dim
    keys = layer.out_features("k")
    return Heads(own, keys // head_dim, head_dim, keys + (layer.out_features("v") or keys))


def conv_state(layer: Layer) -> int:
    """channels x kernel of the depthwise convolutions, which is what transformers caches (vLLM keeps kernel - 1)."""
    return sum(
        tensor.size
        for tensor in layer.leaves.values()
        if tensor.role == "conv" and len(tensor.shape) == 3 and tensor.shape[1] == 1
    )


def recurrent_state(fields: Fields, layer: Layer, heads: int) -> int:
    """Elements of an SSM's state or of a linear attention's matrix.

    Mamba 1: the decay matrix's own size. A gated linear recurrent unit: its channels. Mamba 2: intermediate x state
    size, where Falcon-H1's intermediate is its `mamba_d_ssm` (transformers 5.23 modeling_falcon_h1.py, FalconH1Mixer).
    Delta rules: value heads x key width x value width. Lightning attention (an output gate over fused projections):
    heads x head width squared.
    """
    decay = layer.leaves.get("A_log")
    if decay is not None and len(decay.shape) in (2, 3):
        return decay.size
    if decay is not None and "D" in layer.leaves:
        own = number(fields.first("mamba_head_dim", "mamba_d_head", "mamba_headdim"))
        inner = number(fields.get("mamba_d_ssm")) or decay.size * own or number(fields.get("_inter"))
        inner = inner or decay.size * number(fields.first("head_dim"))
        return inner * number(fields.first("ssm_state_size", "mamba_d_state", "state_size"))
    if "recurrent_param" in layer.leaves:
        return layer.leaves["recurrent_param"].size
    if decay is not None or "ssm" in layer.roles:
        value_heads = number(fields.first("linear_num_value_heads", "linear_num_heads"))
        key_dim = number(fields.first("linear_key_head_dim", "linear_head_dim"))
        value_dim = number(fields.first("linear_value_head_dim", "linear_head_dim"))
        return value_heads * key_dim * value_dim
    if "output_gate" in layer.leaves and "qkv" in layer.roles:
        return heads * number(fields.first("head_dim", "_hd")) ** 2
    return 0
