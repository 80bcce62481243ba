"""The modules of one layer: weights as leaves of the tape, with what PEFT and bitsandbytes put around them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from ...models.adapter_types import INSIDE, kind_of
from ..states.storage import dtype_bytes
from ..tape.tensor import FOREIGN, Parameter
from .lora_kernels import LoraKernels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...job.job import Adapter
    from ..states.parameters import Parameter as Item


HEAD = "lm_head"
"""The name of a tied head, which has no weight of its own in the inventory."""


class Packing(NamedTuple):
    """How weights are multiplied, packed ones above all.

    kind     `int8` saves its input, everything else is taken for `4bit`
    copies   unpacked copies alive at once: 2 where the weight is cast once more
    apart    whether a bias is added to the product afterwards, in its own width (modeling_falcon.py `FalconLinear`)
    """

    kind: str = "4bit"
    copies: int = 1
    apart: bool = False


class ModuleOptions(NamedTuple):
    """What all modules of a model have in common.

    width    the most bytes that an element of a parameter has when a layer gets it, None for its own
    foreign  the 16-bit dtype that autocast does not compute in
    kernels  the fused functions that LoRA runs in
    """

    width: int | None = None
    adapter: Adapter | None = None
    packing: Packing = Packing()
    foreign: str = ""
    kernels: LoraKernels = LoraKernels()


class Linear:
    """A module with a weight, perhaps a bias, perhaps packed, perhaps adapted.

    `adapter` is that of a type other than LoRA, `parts` its tensors here by name. `shift` and `scale` are LitGPT's
    LLaMA-Adapter's second version: what is added to the output, and what multiplies the sum.
    """

    __slots__ = (
        "a", "adapter", "apart", "b", "bias", "copies", "dora", "dropout", "kernels", "out", "packed", "parts", "role",
        "scale", "shift", "weight",
    )  # fmt: skip

    def __init__(self, weight: Parameter, item: Item, options: ModuleOptions) -> None:
        packing = options.packing
        self.weight = weight
        self.kernels = options.kernels
        self.out = item.shape[0] if item.shape else 1
        self.packed = packing.kind if item.packed else ""
        self.copies = packing.copies
        self.apart = packing.apart and item.role != "head"
        self.role = item.role
        self.bias: Parameter | None = None
        self.a: Parameter | None = None
        self.b: Parameter | None = None
        self.dora: Parameter | None = None
        self.shift: Parameter | None = None
        self.scale: Parameter | None = None
        self.dropout = 0.0
        self.adapter: Adapter | None = None
        self.parts: dict[str, Parameter] = {}

    def leaves(self) -> list[Parameter]:
        """Its weight, bias and adapter."""
        own = (self.weight, self.bias, self.a, self.b, self.dora, self.shift, self.scale, *self.parts.values())
        return [found for found in own if found is not None]

    @property
    def settings(self) -> Adapter:
        """Those of its adapter of a type other than LoRA, which it must have."""
        assert self.adapter is not None
        return self.adapter

    @property
    def width(self) -> int:
        """Bytes of an element of what the adapter trains; float32 where it shares all of that with other modules."""
        return next((part.e for part in self.parts.values() if part.trainable), 4)


class Modules:
    """The modules of one layer, or those outside the stack, by dotted name, by role and by last name."""

    def __init__(self, items: Iterable[Item], options: ModuleOptions, summed: Collection[Item] = ()) -> None:
        """`summed` are those whose gradients are added to what another layer's backward has made."""
        width, adapter = options.width, options.adapter
        self._options = options
        self._adapter = adapter if adapter is not None and kind_of(adapter) in INSIDE else None
        self.named: dict[str, Linear] = {}
        for item in sorted(items, key=_order):
            name = item.name.partition("{0}.")[2] if item.layers is not None else item.name
            module, _, kind = name.rpartition(".")
            e = FOREIGN if item.dtype == options.foreign else int(dtype_bytes(item.dtype))
            groups = item.shape[0] if len(item.shape) == 3 else 1
            leaf = Parameter(item.size, min(width, e) if width else e, item.graded or item.idle, groups)
            leaf.summed = item in summed
            if item.role == "head" and item.part == "adapter" and module not in self.named:
                self._part_head(module)
            self._place(module, kind, leaf, item)
        if any(linear.role == "embedding" and linear.a is not None for linear in self.named.values()):
            self._part_head(HEAD)
        for linear in self.named.values():
            if adapter is not None and (linear.a is not None or linear.adapter is not None):
                linear.dropout = adapter.dropout
        self._roles: dict[str, Linear] = {}
        for linear in self.named.values():
            self._roles.setdefault(linear.role, linear)

    def _part_head(self, name: str) -> None:
        """Give a tied head a module of its own, as adapters of the embeddings are not the head's, nor the reverse."""
        words = next((linear for linear in self.named.values() if linear.role == "embedding"), None)
        if words is None or any(linear.role == "head" for linear in self.named.values()):
            return
        head = self.named[name] = copy(words)
        head.role, head.a, head.b, head.dora = "head", None, None, None

    def cast_with(self, others: Modules) -> None:
        """Let autocast's copies be those of the same modules in another layer."""
        for name, module in self.named.items():
            other = others.named[name]
            for mine, twin in zip(module.leaves(), other.leaves(), strict=True):
                mine.twin = twin

    def _place(self, module: str, kind: str, leaf: Parameter, item: Item) -> None:
        found = self.named.get(module) or self.named.get(module.removesuffix(".weight"))
        if found is not None and self._adapter is not None and item.part == "adapter":
            found.adapter = self._adapter
            found.parts[kind] = leaf
        elif found is not None and kind == "lora_A":
            found.a = leaf
        elif found is not None and kind == "lora_B":
            found.b = leaf
        elif found is not None and kind == "lora_magnitude_vector":
            found.dora = leaf
        elif found is not None and kind == "adapter_bias":
            found.shift = leaf
        elif found is not None and kind == "adapter_scale":
            found.scale = leaf
        elif found is not None and kind == "bias":
            found.bias = leaf
        elif kind == "weight":
            self.named[module] = Linear(leaf, item, self._options)
        else:
            self.named[f"{module}.{kind}"] = Linear(leaf, item, self._options)

    def role(self, role: str) -> Linear | None:
        """The first module of a role."""
        return self._roles.get(role)

    def need(self, role: str) -> Linear:
        """The first module of a role that must exist; raises KeyError."""
        return self._roles[role]

    def leaf(self, name: str) -> Linear | None:
        """The module whose name ends in `name`."""
        if name in self.named:
            return self.named[name]
        end = "." + name
        return next((linear for key, linear in self.named.items() if key.endswith(end)), None)

    def require(self, name: str) -> Linear:
        """The module whose name ends in `name`, which must exist; raises KeyError."""
        found = self.leaf(name)
        if found is None:
            raise KeyError(name)
        return found

    def norms(self, size: int) -> list[Linear]:
        """The normalisations over `size` features, in the order of the inventory."""
        return [linear for linear in self.named.values() if linear.role == "norm" and linear.weight.n == size]


def _order(item: Item) -> int:
    """Weights before their biases and adapters; a trained copy of a module after the original, which it replaces."""
    return {"base": 0, "copy": 1}.get(item.part, 2) if not item.name.endswith(".bias") else 3
