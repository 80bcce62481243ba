"""What an optimizer keeps between steps, and what its step needs besides."""

from __future__ import annotations

import json
import os
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...upstream.stack import Stack
from ...upstream.torch import FOREACH, SPARING_FOREACH
from ..allocator.allocator import block_size
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...job.job import Job
    from .parameter import Parameter

FALLBACK = "adamw_torch"
"""What stands in for a name that the table lacks: two states in the parameter's dtype, the most common kind."""

PAGED_FROM = 100_000
"""Elements from which bitsandbytes pages a state (`get_state_buffer`, optim/optimizer.py 0.50.2)."""


class Spec(NamedTuple):
    """A row of `optimizers.json`; see its `about`."""

    name: str
    states: tuple[str, ...]
    counter: bool
    foreach: int
    largest: tuple[float, float]
    previous: bool | str
    square: bool
    minimum: int
    tables: int
    paged: bool
    host: bool
    in_backward: bool
    kahan: bool
    rank: int
    rest: str | None
    source: str
    known: bool = True
    exact: bool = True
    compiled: bool = False
    unsparing_foreach: int = 0


class Item(NamedTuple):
    """Tensors of one shape that the optimizer updates: `copies` of them, in `dtype`.

    flat        a slice of a flattened buffer, which no factored or low-rank optimizer can treat as a matrix
    decay       in the group with weight decay
    embedding   the weight of an nn.Embedding;  matrix  a hidden weight matrix (neither embedding, head nor vector)
    end         -1 for PEFT's trained copy of an embedding, 1 for that of the head: each is stepped where its original
                would be, before or after the layers (peft/utils/other.py 0.21 `ModulesToSaveWrapper` holds the copy)
    """

    shape: tuple[int, ...]
    copies: int
    dtype: str
    flat: bool = False
    decay: bool = True
    embedding: bool = False
    matrix: bool = True
    end: int = 0

    @property
    def size(self) -> int:
        """Elements of one tensor."""
        return prod(self.shape)


class States(NamedTuple):
    """Bytes of one rank.

    allocated   by torch's allocator on the GPU;  raw  the same before rounding to blocks
    paged       in CUDA managed memory: on the GPU while there is room, in main memory otherwise
    host        in main memory
    temporary   what one step allocates on top and frees again
    """

    allocated: int
    raw: int
    paged: int
    host: int
    temporary: int


@cache
def _table() -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(__file__), "optimizers.json"), encoding="utf-8") as file:
        table: dict[str, Any] = json.load(file)
    return table


def names() -> tuple[str, ...]:
    """Every optimizer name and alias of the table."""
    table = _table()
    return (*table["rows"], *table["aliases"])


@cache
def specification(name: str) -> Spec:
    """The row of an optimizer name in any known spelling.

    `known` is False where AdamW stands in, `exact` where the row is the nearest optimizer's.
    """
    table = _table()
    key = given = name.lower().replace("-", "_")
    key = table["aliases"].get(key, key)
    known = key in table["rows"]
    row = table["rows"][key if known else FALLBACK]
    largest = row.get("largest", (0, 0))
    return Spec(
        key,
        tuple(row["states"]),
        row.get("counter", False),
        row.get("foreach", 0),
        (largest[0], largest[1]),
        row.get("previous", False),
        row.get("square", False),
        row.get("minimum", 0),
        row.get("tables", 0),
        row.get("paged", False),
        row.get("host", False),
        row.get("in_backward", False),
        row.get("kahan", False),
        row.get("rank", 0),
        row.get("rest"),
        row["source"],
        known,
        given not in table["stand_ins"],
        row.get("compiled", False),
        row.get("unsparing_foreach", 0),
    )


def of_job(job: Job) -> Spec:
    """The job's optimizer with what the job overrides: `foreach` off, stepping in the backward pass, a rank."""
    spec, stack = specification(job.optimizer.name), Stack(job)
    loops = spec.source.startswith("torch/optim") and not stack.does(FOREACH)
    if spec.unsparing_foreach and not stack.does(SPARING_FOREACH):
        spec = spec._replace(foreach=spec.unsparing_foreach)
    if (job.optimizer.foreach is False or (loops and job.optimizer.foreach is None)) and spec.foreach:
        spec = _one_by_one(spec)
    elif job.optimizer.foreach is True and spec.name == "adamw_torch_forloop":
        spec = spec._replace(foreach=1, largest=(0, 0), previous=False)
    if job.optimizer.in_backward and not spec.in_backward:
        spec = spec._replace(in_backward=True)
    if job.optimizer.rank is not None and spec.rank:
        spec = spec._replace(rank=job.optimizer.rank)
    return spec


def _one_by_one(spec: Spec) -> Spec:
    """A torch optimizer told not to take its multi-tensor path."""
    loop = specification("adamw_torch_forloop" if spec.name == "adamw_torch" else spec.name)
    return spec._replace(foreach=0, largest=(1, 1) if loop is spec else loop.largest, previous=loop.previous)


def items(parameters: Iterable[Parameter]) -> list[Item]:
    """The trainable ones of `parameters` as the optimizer sees them."""
    return [
        Item(
            parameter.shape,
            parameter.copies,
            parameter.dtype,
            decay=parameter.decay,
            embedding=parameter.role in ("embedding", "position"),
            matrix=len(parameter.shape) >= 2 and parameter.role not in ("embedding", "position", "head"),
            end=_COPIES.get(parameter.role, 0) if parameter.part == "copy" else 0,
        )
        for parameter in parameters
        if parameter.trainable
    ]


_COPIES = {"embedding": -1, "head": 1}


def states(tensors: Sequence[Item], spec: Spec, job: Job) -> States:
    """Bytes that the optimizer keeps for `tensors` on one rank, and what its step needs on top.

    Per tensor and state: elements x bytes of the state's dtype, see `optimizers.json`. A fused optimizer adds one
    fp32 step count a tensor (a 512-byte block), 8-bit ones their code tables (256 fp32 each, once).
    The step: a multi-tensor implementation copies the second moment of a whole parameter group
    (torch/optim/adam.py `_multi_tensor_adam`); one that goes tensor by tensor needs its temporaries for the
    largest tensor; one that steps in the backward pass handles one tensor at a time.
    """
    kept = raw = paged = 0
    for item in tensors:
        for count, dtype in _pieces(item, spec, job):
            size = int(-(-count * dtype_bytes(dtype) // 1))
            raw += item.copies * size
            if spec.paged and min(item.size, count) >= PAGED_FROM:
                paged += item.copies * size
            else:
                kept += item.copies * block_size(size)
    if spec.tables and tensors:
        raw += spec.tables * 1024
        kept += spec.tables * 1024
    temporary = step_temporaries(tensors, spec).size
    if spec.host:
        return States(0, raw, 0, raw, temporary)
    return States(kept, raw, paged, 0, temporary)


def state_blocks(tensors: Sequence[Item], spec: Spec, job: Job) -> list[tuple[int, int]]:
    """(bytes, how many) of the tensors that `states` counts as allocated, before rounding."""
    if spec.host:
        return []
    found = []
    for item in tensors:
        for count, dtype in _pieces(item, spec, job):
            if not spec.paged or min(item.size, count) < PAGED_FROM:
                found.append((int(-(-count * dtype_bytes(dtype) // 1)), item.copies))
    return found


def step_blocks(tensors: Sequence[Item], spec: Spec) -> list[tuple[int, int]]:
    """(bytes, how many) of the temporaries that one step allocates: of a group's tensors, or of the largest update."""
    if not spec.foreach or spec.in_backward:
        return list(step_temporaries(tensors, spec).blocks)
    groups: dict[tuple[bool, str], list[tuple[int, int]]] = {}
    for item in tensors:
        size = int(item.size * dtype_bytes(item.dtype))
        groups.setdefault((item.decay, item.dtype), []).append((size, spec.foreach * item.copies))
    return max(groups.values(), key=lambda sizes: sum(size * count for size, count in sizes), default=[])


def _pieces(item: Item, spec: Spec, job: Job) -> list[tuple[float, str]]:
    """(elements, dtype) of each tensor that one copy of `item` adds to the optimizer's state."""
    if spec.rest and not _main(item):
        return _pieces(item, specification(spec.rest), job)
    dtype = job.optimizer.state_dtype
    found: list[tuple[float, str]] = []
    for state in spec.states:
        kind = "float32" if spec.minimum and item.size < spec.minimum and state.startswith("block8") else state
        if kind.startswith("block8") and item.embedding and job.optimizer.embeddings_32bit:
            kind = "float32x2" if kind.endswith("x2") else "float32"
        if kind == "parameter":
            kind = dtype or item.dtype
        found.extend(_state(kind, item, spec))
    if spec.kahan and item.dtype in ("bfloat16", "float16"):
        found.append((item.size, item.dtype))
    if spec.counter:
        found.append((1, "float32"))
    return found


def _main(item: Item) -> bool:
    """Whether an optimizer that has a `rest` treats a tensor by its own rule: hidden matrices alone."""
    return item.matrix and not item.flat and len(item.shape) >= 2


def _state(kind: str, item: Item, spec: Spec) -> list[tuple[float, str]]:
    size, shape = item.size, item.shape
    if kind in ("block8", "block8x2"):
        times = 2 if kind.endswith("x2") else 1
        return [(times * size, "uint8"), (times * -(-size // 256), "float32")]
    if kind == "float32x2":
        return [(2 * size, "float32")]
    if kind in ("ao8", "ao4"):
        if size < 4096 or size % 256:
            return [(size, item.dtype)]
        codes: list[tuple[float, str]] = [(size, "uint8" if kind == "ao8" else "int4"), (size // 256, "float32")]
        return [*codes, (256 if kind == "ao8" else 16, "float32")]
    if kind == "factored":
        if item.flat or len(shape) < 2:
            return [(size, "float32"), (1, "float32")]
        rows, columns = size // shape[-1], size // shape[-2]
        return [(rows, "float32"), (columns, "float32"), (1, "float32")]
    if kind == "momentum":
        return [(size, item.dtype)]
    if kind.startswith("low_rank"):
        return _low_rank(kind, item, spec)
    return [(size, kind)]


def _low_rank(kind: str, item: Item, spec: Spec) -> list[tuple[float, str]]:
    """Gradients of an m x n matrix projected to rank r on its shorter side: r x max(m, n), projector r x min(m, n).

    GaLore's projector of a float32 gradient, which its Adafactor makes of every one, is a view of the singular vectors
    that it was taken from: a square of min(m, n) (galore_torch 1.0 galore_projector.py `get_orthogonal_matrix`).
    """
    wide, narrow = max(item.shape[-2:]), min(item.shape[-2:])
    rank = min(spec.rank, narrow)
    rest = item.size // (wide * narrow)
    projected = rest * rank * wide
    projector: tuple[float, str] = (rest * rank * narrow, item.dtype)
    if spec.square and (kind == "low_rank_factored" or item.dtype == "float32"):
        projector = (rest * narrow * narrow, "float32")
    if kind == "low_rank8":
        blocks = -(-projected // 256)
        return [(projected, "uint8"), (blocks, "float32"), (projected, "uint8"), (blocks, "float32"), projector]
    if kind == "low_rank_factored":
        return [(rest * rank, "float32"), (rest * wide, "float32"), projector]
    return [(projected, item.dtype), (projected, item.dtype), projector]


class Temporaries(NamedTuple):
    """Bytes that one step allocates and frees again, their arithmetic, and of an update the (bytes, how many) in it."""

    size: int
    formula: str
    blocks: tuple[tuple[int, int], ...] = ()


def step_temporaries(tensors: Sequence[Item], spec: Spec) -> Temporaries:
    """What one step takes; where matrices have a rule of their own, by that or by the other one, the larger."""
    if spec.rest:
        other = specification(spec.rest)._replace(in_backward=spec.in_backward)
        own = [item for item in tensors if _main(item)]
        left = [item for item in tensors if not _main(item)]
        if spec.name.startswith(("galore", "apollo")):  # one group (transformers trainer `_setup_low_rank_optimizer`)
            left = [item._replace(decay=True) for item in left]
        alone = step_temporaries(own, spec._replace(rest=None)), step_temporaries(left, other)
        return max(*alone, _between(own, left, spec))
    if not tensors:
        return Temporaries(0, "")
    if spec.foreach:
        return _copies(tensors, spec)
    full, half = spec.largest
    stepped = sorted(tensors, key=lambda item: item.end)
    layered = [item for item in stepped if item.copies > 1]  # a layer's first tensor follows the last of the one before
    return max(_largest(stepped, spec, full, half), _largest([*layered, *layered], spec, full, half))


def _copies(tensors: Sequence[Item], spec: Spec) -> Temporaries:
    """Copies of a whole parameter group at once, or in the backward pass of one tensor after the other."""
    groups: dict[tuple[object, str], list[int]] = {}
    for item in tensors:
        key = item if spec.in_backward else item.decay
        size = block_size(int(item.size * dtype_bytes(item.dtype)))
        copies = 1 if spec.in_backward else item.copies
        found = groups.setdefault((key, item.dtype), [0, 0])
        found[0] += copies * size
        found[1] += copies * item.size
    (_, dtype), (size, count) = max(groups.items(), key=lambda group: group[1][0])
    what = "of the largest tensor" if spec.in_backward else "of the largest parameter group"
    times = f"{spec.foreach} x " if spec.foreach > 1 else ""
    return Temporaries(spec.foreach * size, f"{times}{dtype_bytes(dtype):g} B x {count:,} elements {what}")


def _between(own: Sequence[Item], left: Sequence[Item], spec: Spec) -> Temporaries:
    """GaLore's first decomposition, while the update of the last of the other tensors and its denominator, or its
    parameter in float32, still have names."""
    if not own or not left or not spec.square or not spec.previous or spec.in_backward:
        return Temporaries(0, "")
    last, (full, half) = left[-1], spec.largest
    wide = last.dtype == "float32"
    named = 2 * dtype_bytes(last.dtype) if spec.previous == "parameter" else 4 if wide else 8
    first = _largest(own[:1], spec, full, half)
    return Temporaries(
        int(named * last.size) + first.size,
        f"{named:g} B x {last.size:,} elements of the last vector + {first.formula}",
        ((int(named * last.size), 1), *first.blocks),
    )


def _largest(tensors: Sequence[Item], spec: Spec, full: float, half: float) -> Temporaries:
    """The most that one tensor's update takes, `full` or `half` float32 copies of it, with what the one before left."""
    most, before = Temporaries(0, ""), 0
    for item in tensors:
        copies = half if item.dtype in ("bfloat16", "float16") else full
        kept = before if spec.previous and not spec.in_backward else 0
        square = min(item.shape[-2:]) ** 2 if spec.square else 0
        size = int(copies * 4 * item.size) + 4 * square + kept
        if size > most.size:
            parts = [f"{copies:g} x 4 B x {item.size:,} elements of one tensor"]
            parts += [f"4 B x {square:,} elements of a square"] if square else []
            parts += [f"{kept:,} B of the one before"] if kept else []
            whole, part = int(copies), int(copies % 1 * 4 * item.size)
            blocks = (4 * item.size, whole), (part, 1), (4 * square, 1), (kept, 1)
            most = Temporaries(size, " + ".join(parts), tuple(block for block in blocks if block[0]))
        width = dtype_bytes(item.dtype) if spec.previous == "parameter" else 4
        before = int(width * item.size) if item.decay else before
    return most
