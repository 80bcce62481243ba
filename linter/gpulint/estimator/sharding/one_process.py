"""torch.nn.DataParallel: one process, whose first GPU holds what all GPUs of a step hand back.

Each step copies the weights to the other GPUs, cuts the batch into one piece a GPU, and gathers the outputs of all on
the first (torch 2.13 nn/parallel/data_parallel.py `forward`, scatter_gather.py `gather`). Their gradients are whole on
each GPU before the first sums them (nn/parallel/_functions.py `Broadcast.backward`, comm.py `reduce_add_coalesced`). It
alone has the optimizer. Transformers wraps a model so where one process sees several GPUs (trainer.py `_wrap_model`),
but not a quantised one or one that a device map spreads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import transformers
from ...upstream.stack import Stack
from ..estimate import Assumption, Phase
from ..inputs.objectives import logits_width, scored_positions
from ..losses.losses import WHOLE_LOGITS
from ..serving.kv_cache import layer_caches, sequence_bytes
from ..states.parameters import base_dtype
from ..states.storage import dtype_bytes
from ..terms import Term, line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Job
    from ...models.model import Model

WHOLE = frozenset({"sft", "pretrain"})
"""Objectives whose one forward pass hands back the logits of all rows; those of others are not counted."""


def replicated(job: Job) -> bool:
    """Whether several GPUs of the job belong to one process."""
    return job.parallelism.one_process and job.data_parallel > 1


def gathered(job: Job, model: Model, fixed: Iterable[Term], left: int) -> list[Phase]:
    """The first GPU when the outputs of a training step have been gathered; nothing where none hold logits.

    l bytes of logits a GPU: `left` bytes that its own forward pass leaves for backward, its own l, and n l in one
    tensor. A copy of the keys and values comes with them where outputs hold any.
    """
    logits = _logits(job, model, job.micro_batch_size)
    if not logits:
        return []
    ranks = job.data_parallel
    caches = ranks * _caches(job, model, job.micro_batch_size) if _tuples(job) and _keeps(job) else 0
    found = [
        line("activations", left, "what the forward pass leaves for backward", "estimator/activations.py"),
        Term("logits", f"(1 + {ranks}) x {logits:,} B", (1 + ranks) * logits, _GATHER, _GATHERED),
        line("kv_cache", caches, "keys and values of all GPUs", _GATHER),
    ]
    return [Phase("gather", (*fixed, *(term for term in found if term.size)))]


_GATHER = "torch 2.13 nn/parallel/scatter_gather.py gather"
_GATHERED = "logits of the first GPU, and those of all in one tensor"


def evaluated(job: Job, model: Model, fixed: Iterable[Term]) -> list[Phase]:
    """The same in an evaluation, whose forward pass leaves its outputs alone."""
    rows = job.evaluation.micro_batch_size
    logits = _logits(job, model, rows) if rows else 0
    if not logits:
        return []
    ranks = job.data_parallel
    kept = (1 + ranks) * _caches(job, model, rows) if job.evaluation.caches else 0
    found = [
        Term("logits", f"(1 + {ranks}) x {logits:,} B", (1 + ranks) * logits, _GATHER, _GATHERED),
        line("kv_cache", kept, "keys and values of the first GPU, and those of all", _GATHER),
    ]
    return [Phase("evaluation", (*fixed, *(term for term in found if term.size)))]


def unknown_caches(job: Job, model: Model) -> list[Assumption]:
    """Keys and values that releases between tuples and 5.0 gather with some models and not with others."""
    stack = Stack(job)
    version = stack.version(transformers.NAME)
    between = not _tuples(job) and not stack.does(transformers.USE_CACHE_OFF)
    if not replicated(job) or not between or not _keeps(job) or not _logits(job, model, 1):
        return []
    more = job.data_parallel * _caches(job, model, job.micro_batch_size)
    if not more:
        return []
    note = "whether the first GPU gathers the keys and values of a step's outputs too depends on the cache's class"
    return [Assumption("versions.transformers", str(version), note, 0, more)]


def _tuples(job: Job) -> bool:
    return Stack(job).does(transformers.CACHE_TUPLES)


def _keeps(job: Job) -> bool:
    """Whether a training step's outputs hold keys and values: models drop them where layers are checkpointed."""
    return job.activation_checkpointing == "none"


def _logits(job: Job, model: Model, rows: int | None) -> int:
    """Bytes of the logits that one GPU's forward pass hands back: rows x length x vocabulary, as wide as they are."""
    if not rows or not job.sequence_length or job.objective not in WHOLE or job.loss.kernel not in WHOLE_LOGITS:
        return 0
    return int(logits_width(job, model) * rows * scored_positions(job, model) * model.shape.vocabulary)


def _caches(job: Job, model: Model, rows: int | None) -> int:
    """Bytes of one GPU's keys and values."""
    if not model.config.get("use_cache", True) or Stack(job).native:
        return 0
    width = dtype_bytes(job.precision.autocast or base_dtype(job, model))
    return (rows or 0) * sequence_bytes(layer_caches(model), scored_positions(job, model), width)
