"""What the tape needs to know of a job and its model, resolved once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parameters import parameters
from .storage import dtype_bytes
from .tape import Parameter, Tape

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model
    from .parameters import Parameter as Item


class Linear:
    """One nn.Linear with what PEFT and bitsandbytes put around it."""

    __slots__ = ("a", "b", "bias", "dora", "dropout", "packed", "weight")

    def __init__(self, weight: Parameter, packed: bool) -> None:
        self.weight = weight
        self.packed = packed
        self.bias: Parameter | None = None
        self.a: Parameter | None = None
        self.b: Parameter | None = None
        self.dora: Parameter | None = None
        self.dropout = 0.0


class Setting:
    """Sizes, widths and switches of one micro step on one rank."""

    def __init__(self, job: Job, model: Model) -> None:
        shape = model.shape
        self.job = job
        self.model = model
        self.config: dict[str, Any] = model.config
        self.batch = job.micro_batch_size or 1
        self.length = -(-(job.sequence_length or 1) // job.parallelism.context)
        self.rows = self.batch * self.length
        self.autocast = 2 if job.precision.autocast else 0
        self.tensor = job.parallelism.tensor
        self.heads = -(-shape.heads // self.tensor)
        self.kv_heads = -(-shape.kv_heads // self.tensor)
        self.head_dim = shape.head_dim
        self.hidden = shape.hidden
        self.attention = job.attention
        self.padded = job.padded
        self.items = parameters(job, model)
        self.trainable = sum(item.elements for item in self.items if item.trainable)
        self.layers = shape.layers

    def tape(self) -> Tape:
        """An empty tape under this job's autocast."""
        tape = Tape()
        tape.autocast = self.autocast
        tape.accumulated = self.job.gradient_accumulation_steps > 1
        return tape

    def modules(self, layer: int | None) -> dict[str, Linear]:
        """The modules of one layer, or outside the stack, by dotted name without the layer's prefix."""
        found: dict[str, Linear] = {}
        for item in sorted(self.items, key=lambda item: item.name.endswith(".bias")):
            if item.part == "buffer" or (item.layers is None) is not (layer is None):
                continue
            if layer is not None and layer not in item.layers:  # type: ignore[operator]
                continue
            name = item.name.partition("{0}.")[2] if layer is not None else item.name
            module, _, kind = name.rpartition(".")
            leaf = Parameter(item.size, int(dtype_bytes(item.dtype)), item.trainable)
            _place(found, module, kind, leaf, item)
        if self.job.adapter is not None:
            for linear in found.values():
                linear.dropout = self.job.adapter.dropout if linear.a is not None else 0.0
        return found


def _place(found: dict[str, Linear], module: str, kind: str, leaf: Parameter, item: Item) -> None:
    if kind == "lora_A":
        found[module].a = leaf
    elif kind == "lora_B":
        found[module].b = leaf
    elif kind == "lora_magnitude_vector":
        found[module].dora = leaf
    elif kind == "bias" and module in found:
        found[module].bias = leaf
    elif kind == "weight":
        found[module] = Linear(leaf, item.packed)
    else:
        found[f"{module}.{kind}"] = Linear(leaf, item.packed)
