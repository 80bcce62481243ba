"""DeepSpeed JSON configs, as files of their own.

A DeepSpeed config says nothing about the model, so its Job has none: no estimate is made, but rules on the config's own
facts run. The same config named by another one is read by `apply`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import deepspeed
from ..core.backends.deepspeed import AUTO, ROWS, UPSTREAM, zero_keys
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Table
from ..core.coercion import as_number
from ..core.format import Format, Problem, Reading
from ..core.world_size import set_hardware
from .config import SIZES, apply
from .values import AutoValues

if TYPE_CHECKING:
    from typing import Any

    from ...source.document import Document
    from ..core.bindings.rows import Say
    from ..core.format import Project
    from ..core.key_changes import Keys

_FILLED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
"""Keys where "auto" stops raw DeepSpeed; Transformers and accelerate fill them."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a DeepSpeed config alone: no model, and "auto" left to whoever runs it."""
    reader = Reader(document, project, "deepspeed", UPSTREAM)
    reader.derived("kind", "training", "a DeepSpeed config")
    if stated := project.versions.get(deepspeed.NAME):
        note = "the version that the launcher or the settings state"
        reader.derived("versions.deepspeed", stated, note)
    set_hardware(reader, project, None, sharded=True)
    problems = apply(reader, document, AutoValues(client="", world_size=project.gpus))
    problems = [item for item in problems if not _is_anothers(item)]
    if document.syntax == "yaml":
        problems = [item for item in problems if not _is_number(item)]
    for key in _FILLED:
        entry = document.root.entry(key)
        if entry is not None and entry.value.is_scalar and entry.value.value == "auto":
            problems.append(Problem("auto-unfilled", key, entry.value.span, {"upstream": UPSTREAM}))
    reader.reading.problems = problems
    return reader.reading


def _is_anothers(problem: Problem) -> bool:
    """A top key that is like none of DeepSpeed's: scripts that load the file keep settings of their own in it."""
    return problem.kind == "unknown-key" and "." not in problem.key and not problem.values["suggestion"]


def _is_number(problem: Problem) -> bool:
    """`5e8`, which PyYAML takes for text: DeepSpeed reads no YAML, and the likes of OmegaConf take it for a number."""
    return problem.kind == "wrong-type" and as_number(problem.values["found"]) is not None


def _size(key: str) -> Say:
    """A size may change alone where no total ties it, and where it is not the client's ("auto")."""

    def said(reading: Reading, value: int) -> Keys | None:
        root = reading.config.root
        node = root.get(key)
        return {key: value} if root.get("train_batch_size") is None and (node is None or node.value != AUTO) else None

    return said


def _named(_reading: Reading, keys: dict[str, Any]) -> Keys:
    """A section is known by its device."""
    return {key: value["device"] if isinstance(value, dict) else value for key, value in keys.items()}


TABLE = Table(
    ROWS,
    says={field: _size(key) for field, key in SIZES.items()},
    zero=lambda reading, changes: zero_keys(reading.config.root, "", changes),
    named=_named,
)

FORMAT = Format.of_table(
    "deepspeed", "DeepSpeed config", UPSTREAM, read, TABLE,
    "`train_batch_size` over micro batch and accumulation",
)  # fmt: skip
