"""DeepSpeed JSON configs, as files of their own.

A DeepSpeed config says nothing about the model, so its Job has none: no estimate is made, but rules on the config's own
facts run. The same config named by another one is read by `apply`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import deepspeed
from ..core.coercion import as_number
from ..core.format import Format, JobBuilder, Problem, Reading
from ..core.keys import load
from ..core.world_size import set_hardware
from .config import apply
from .edits import describe, edits
from .values import UPSTREAM, AutoValues, Reference

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Node
    from ..core.format import Project

__all__ = ["FORMAT", "UPSTREAM", "AutoValues", "Reference", "apply"]

_PRECISION = frozenset({"fp16", "bf16"})
_BATCH = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
_OTHERS = frozenset(
    {
        "model_name_or_path", "base_model", "compute_environment", "distributed_type", "output_dir", "num-layers",
        "num_layers", "hidden-size", "hidden_size", "pipe-parallel-size", "pipe_parallel_size", "extends",
    }
)  # fmt: skip
"""Keys of configs that hold a DeepSpeed config, or share its words (gpt-neox)."""

_FILLED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
"""Keys where "auto" stops raw DeepSpeed; Transformers and accelerate fill them."""


def recognise(document: Document) -> bool:
    """`zero_optimization`, a DeepSpeed batch key among keys that are mostly DeepSpeed's, or a precision section (a
    mapping) beside other DeepSpeed keys.
    """
    root = document.root
    keys = set(root.keys())
    if keys & _OTHERS or document.syntax == "toml":
        return False
    if "zero_optimization" in keys:
        return _is_section(root.get("zero_optimization"))
    if "train_micro_batch_size_per_gpu" in keys:
        return len(keys - load("deepspeed")["properties"].keys()) * 2 <= len(keys)
    sections = [key for key in keys & _PRECISION if _is_section(root.get(key))]
    return bool(sections and keys & (_BATCH | {"optimizer", "steps_per_print", "gradient_clipping"}))


def read(document: Document, project: Project) -> Reading:
    """The Job of a DeepSpeed config alone: no model, and "auto" left to whoever runs it."""
    builder = JobBuilder(document, UPSTREAM)
    builder.derived("kind", "training", "a DeepSpeed config")
    if stated := project.versions.get(deepspeed.NAME):
        note = "the version that the launcher or the settings state"
        builder.derived("versions.deepspeed", stated, note)
    set_hardware(builder, project, None, sharded=True)
    problems = apply(builder, document, AutoValues(client="", world_size=project.gpus))
    problems = [item for item in problems if not _is_anothers(item)]
    if document.syntax == "yaml":
        problems = [item for item in problems if not _is_number(item)]
    for key in _FILLED:
        entry = document.root.entry(key)
        if entry is not None and entry.value.is_scalar and entry.value.value == "auto":
            problems.append(Problem("auto-unfilled", key, entry.value.span, {"upstream": UPSTREAM}))
    return Reading("deepspeed", UPSTREAM, document, builder.job, {}, problems)


def _is_anothers(problem: Problem) -> bool:
    """A top key that is like none of DeepSpeed's: scripts that load the file keep settings of their own in it."""
    return problem.kind == "unknown-key" and "." not in problem.key and not problem.values["suggestion"]


def _is_number(problem: Problem) -> bool:
    """`5e8`, which PyYAML takes for text: DeepSpeed reads no YAML, and the likes of OmegaConf take it for a number."""
    return problem.kind == "wrong-type" and as_number(problem.values["found"]) is not None


def _is_section(node: Node | None) -> bool:
    return node is not None and (node.is_mapping or isinstance(node.value, bool))


FORMAT = Format(
    "deepspeed",
    "DeepSpeed config",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "`train_batch_size` over micro batch and accumulation",
)
