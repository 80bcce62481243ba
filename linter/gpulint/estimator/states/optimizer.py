"""What an optimizer keeps between steps; what its step needs besides is in optimizer_step.py."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...source.tables import read_table
from ...upstream.stack import Stack
from ...upstream.torch import FOREACH, SPARING_FOREACH
from ..allocator.allocator import block_size
from ..terms import Term
from .storage import dtype_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...job.job import Job, Offload
    from .parameter import Parameter

_TABLE = read_table(__file__, "optimizers.json")

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
    """

    allocated: int
    raw: int
    paged: int
    host: int


def names() -> tuple[str, ...]:
    """Every optimizer name and alias of the table."""
    table = _TABLE
    return (*table["rows"], *table["aliases"])


@cache
def specification(name: str) -> Spec:
    """The row of an optimizer name in any known spelling.

    `known` is False where AdamW stands in, `exact` where the row is the nearest optimizer's.
    """
    table = _TABLE
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
    """Bytes that the optimizer keeps for `tensors` on one rank.

    Per tensor and state: elements x bytes of the state's dtype, see `optimizers.json`. A fused optimizer adds one
    fp32 step count a tensor (a 512-byte block), 8-bit ones their code tables (256 fp32 each, once).
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
    return States(0, raw, 0, raw) if spec.host else States(kept, raw, paged, 0)


def state_terms(
    tensors: Sequence[Item], spec: Spec, kept: States, job: Job, masters: int = 0, ranks: int = 1
) -> list[Term]:
    """Master weights and states that stay on the GPU, and a note of those that do not."""
    count, name = sum(item.copies * item.size for item in tensors), job.optimizer.name
    share = "" if ranks == 1 else f" (share of one of {ranks} GPUs)"
    found = []
    if masters:
        formula = f"{masters / max(1, count):g} B x {count:,} master weights{share}"
        found.append(Term("optimizer", formula, masters, "precision.master_weights"))
    managed = " in managed memory, on the GPU while there is room and in main memory otherwise"
    for size, here, where in (
        (kept.allocated, kept.allocated, share),
        (kept.paged, 0, managed),
        (kept.host, 0, " in main memory"),
    ):
        if size:
            formula = f"{size / max(1, count):.5g} B x {count:,} elements: states of {name}{where}"
            found.append(Term("optimizer", formula, here, spec.source))
    return found


def offloaded(size: int, away: Offload, job: Job, ratio: float) -> Term:
    """Master weights and states of `size` bytes, of which a share `ratio` waits elsewhere."""
    where = "main memory" if away.device == "cpu" else "files (NVMe)"
    label = f"master weights and states of {job.optimizer.name}; the rest is in {where}"
    return Term("optimizer", f"{1 - ratio:g} x {size:,} B", int((1 - ratio) * size), "offload_optimizer", label)


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


def _pieces(item: Item, spec: Spec, job: Job) -> list[tuple[float, str]]:
    """(elements, dtype) of each tensor that one copy of `item` adds to the optimizer's state."""
    if spec.rest and not treats_as_matrix(item):
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


def treats_as_matrix(item: Item) -> bool:
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
