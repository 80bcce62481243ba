"""`gpulint: job/v1` files: a Job written down as YAML, JSON or TOML.

`Job.validate` (pydantic, imported when a job file is read) decides what is valid; of the first place that it refuses
the schema says what it must be, in a SourceError. What the file leaves out is the Job's own default.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...job.job import Job, field_paths
from ...job.origin import Origin
from ...models.adapter_types import OPTIONS, kind_of
from ...source.document import SourceError
from ...source.schema import faults, load_schema, place
from ..core.bindings.rows import Table
from ..core.format import Format, JobBuilder, Reading
from ..core.key_changes import ZERO
from ..core.keys import unknown_keys
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Entry, Node
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "job"
UPSTREAM = "job/v1"

SHORTHANDS = {
    "loss.kernel": "loss",
    "adapter.type": "adapter",
    "parallelism.zero.offload_optimizer.device": "parallelism.zero.offload_optimizer",
    "parallelism.zero.offload_parameters.device": "parallelism.zero.offload_parameters",
    "parallelism.fsdp.mixed_precision.param_dtype": "parallelism.fsdp.mixed_precision",
    "parallelism.fsdp.mixed_precision.reduce_dtype": "parallelism.fsdp.mixed_precision",
}
"""Field -> the key that may hold it alone (`loss: liger`), as `job_schema` reads it."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a job file. Raises SourceError at the key that is wrong."""
    root = document.root
    version = root.entry("gpulint")
    if version is not None and version.value.value != UPSTREAM:
        raise _error(document, version.value, f"unknown job version {version.value.value}; known is {UPSTREAM}")
    builder = JobBuilder(document, UPSTREAM)
    builder.job = _validated(document)
    _set_origins(builder, root)
    _set_rank(builder, root)
    _set_hardware(builder, root, project)
    problems = unknown_keys(document, NAME)
    return Reading(NAME, UPSTREAM, document, builder.job, {}, problems)


def _set_rank(builder: JobBuilder, root: Node) -> None:
    """The rank of an adapter that states none: PEFT's default for its type."""
    adapter, stated = builder.job.adapter, root.get("adapter")
    if adapter is None or (stated is not None and stated.is_mapping and stated.get("r") is not None):
        return
    usual = OPTIONS.get(kind_of(adapter), {}).get("r")
    if usual:
        builder.derived("adapter.r", usual, "PEFT's default for the type", "adapter.type")


def _validated(document: Document) -> Job:
    from pydantic import ValidationError

    plain = {key: value for key, value in document.root.plain().items() if key != "gpulint"}
    try:
        return Job.validate(plain)
    except ValidationError as error:
        raise _refusal(document, plain, [each["loc"] for each in error.errors(include_url=False)]) from None
    except (RecursionError, TypeError, AttributeError):
        raise _error(document, document.root, "the job cannot be read") from None


def _refusal(document: Document, plain: dict[str, Any], blamed: list[tuple[int | str, ...]]) -> SourceError:
    """What the schema of jobs says of the first place that pydantic blames; pydantic also takes `"8"` for a number."""
    from ...job.schema import long_spelling

    places = {id(place(document.root, location)[0]) for location in blamed}
    told = faults(document.root, long_spelling(plain), load_schema(NAME), "the job")
    fault = next((each for each in told if id(each.node) in places), None)
    if fault is None:
        return _error(document, document.root, "the job cannot be read")
    return _error(document, fault.node, fault.reason)


def _error(document: Document, node: Node, reason: str) -> SourceError:
    return SourceError(document.path, reason, node.span.line, node.span.column)


def _set_origins(builder: JobBuilder, root: Node) -> None:
    """The key of each field that the file states, "default of job/v1" for every other one."""
    job, path_of = builder.job, builder.document.path
    for path in field_paths():
        parent, _, _ = path.rpartition(".")
        if parent and job.get(parent) is None:
            continue
        key, entry = path, _stated(root, path)
        if entry is None and path in SHORTHANDS:
            key = SHORTHANDS[path]
            entry = _stated(root, key)
            entry = entry if entry is not None and entry.value.is_scalar else None
        if entry is not None:
            job.origins[path] = Origin("file", "", path_of, key, entry.value.span, entry.key.span)
        else:
            job.origins[path] = Origin("default", f"default of {UPSTREAM}")


def _stated(root: Node, path: str) -> Entry | None:
    entry = root.find(path)
    return entry if entry is not None and not (entry.value.is_scalar and entry.value.value is None) else None


def _set_hardware(builder: JobBuilder, root: Node, project: Project) -> None:
    """What the project was given wins over the file; no count anywhere is the product of the degrees, or assumed."""
    job = builder.job
    parallel = job.parallelism
    product = parallel.tensor * parallel.pipeline * parallel.context * (parallel.data or 1)
    entry = _stated(root, "hardware.gpus")
    stated = Stated(job.hardware.gpus, entry, "hardware.gpus") if entry is not None and job.hardware.gpus else None
    set_hardware(builder, project, stated, sharded=parallel.zero is not None or parallel.fsdp is not None)
    if stated is None and project.gpus is None and product > 1:
        builder.derived("hardware.gpus", product, "the product of the parallel degrees", "parallelism.tensor")


def _brought(reading: Reading, changes: dict[str, Any]) -> dict[str, Any]:
    """What a tool would bring along: LoRA's rank and targets, DeepSpeed's 16-bit weights with a float32 master copy."""
    job = reading.job
    more: dict[str, Any] = {}
    if changes.get("method") == "lora" and job.adapter is None:
        rank = changes.get("adapter.r", 16)
        more |= {"adapter.type": "lora", "adapter.r": rank, "adapter.alpha": 2 * rank, "adapter.targets": "all-linear"}
    if changes.get("method") == "full":
        more |= {"adapter": None, "weights.quantization": None}
    packed = changes.get("weights.quantization.method")
    if packed in ("bnb-nf4", "bnb-int8"):
        more |= {"weights.quantization.bits": 4 if packed == "bnb-nf4" else 8, "adapter.prepare_kbit": True}
    half = job.precision.autocast or (job.weights.dtype if job.weights.dtype in ("bfloat16", "float16") else None)
    if job.parallelism.zero is None and half and any(path.startswith(ZERO) for path in changes):
        more |= {"weights.dtype": half, "precision.autocast": None, "precision.master_weights": True}
        more["parallelism.fsdp"] = None
    if "parallelism.fsdp.sharding" in changes and job.parallelism.fsdp is None:
        more |= {"parallelism.fsdp.version": 2, "parallelism.fsdp.wrap": "transformer", "parallelism.zero": None}
        if job.precision.autocast:
            more["parallelism.fsdp.mixed_precision"] = job.precision.autocast
            more["parallelism.fsdp.upcast_trainable"] = True
    return more


def _field(path: str, reading: Reading, value: Any) -> Keys | None:
    """The field itself, or the shorthand (`loss: torch`) that the file uses; None where no key can be put."""
    root, short = reading.config.root, SHORTHANDS.get(path)
    entry = root.find(short) if short else None
    if short and entry is not None and entry.value.is_scalar and entry.value.value is not None:
        return {short: value}
    node: Node | None = root
    for name in path.split(".")[:-1]:
        node = node.get(name) if node is not None and node.is_mapping else None
        if node is not None and not node.is_mapping and node.value is not None:
            return None
    return {path: value}


TABLE = Table((), {path: partial(_field, path) for path in field_paths()}, brings=_brought, nulls=True)
"""A key is a field, which pydantic reads."""

FORMAT = Format.of_table(NAME, "gpulint job file", UPSTREAM, read, TABLE, "`hardware`")
