"""`accelerate launch` configs: how many processes, and how they share a model that a script brings.

The Job has no model, so no estimate is made of it; rules on the config's own facts run. Facts from accelerate 1.15.0
(`commands/launch.py`, `commands/config/config_args.py`, `utils/dataclasses.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Fsdp
from ..core.arguments import Arguments
from ..core.format import Format, JobBuilder, Reading
from ..core.keys import key_problems
from ..core.world_size import Stated, set_hardware
from ..deepspeed.values import AutoValues
from ..hf_trainer.fsdp import Section, apply_fsdp
from .edits import describe, edits
from .sections import UPSTREAM, fsdp_defaults, set_degrees, set_file, set_init, set_own

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "accelerate"

_COMPANIONS = frozenset(
    {
        "num_processes", "num_machines", "mixed_precision", "machine_rank", "use_cpu", "main_training_function",
        "deepspeed_config", "fsdp_config", "rdzv_backend", "main_process_port", "gpu_ids", "iam_role_name",
    }
)  # fmt: skip
"""Keys of which an accelerate config has some beside `compute_environment` or `distributed_type`."""

_WITHOUT_GPUS = frozenset({"XLA", "TPU", "MULTI_CPU", "MULTI_NPU", "MULTI_MLU", "MULTI_XPU", "MULTI_HPU"})
"""`distributed_type` values that run on something else."""

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
"""`mixed_precision` -> the 16-bit dtype it works with (fp8 keeps bf16 autocast around its kernels)."""


def recognise(document: Document) -> bool:
    """`distributed_type` or `compute_environment` beside other keys of accelerate."""
    keys = set(document.root.keys())
    return bool(keys & {"distributed_type", "compute_environment"}) and bool(keys & _COMPANIONS)


def read(document: Document, project: Project) -> Reading:
    """The Job of an accelerate config: processes, precision, ZeRO or FSDP; no model."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job, {}, key_problems(document, NAME))
    keys = Arguments(document.root)
    kind = keys.text("distributed_type")
    distributed = kind.value if kind else "NO"
    builder.derived("kind", "training", "an accelerate config")
    _set_hardware(builder, keys, project, distributed)
    precision = keys.text("mixed_precision")
    dtype = _DTYPES.get(precision.value.lower()) if precision else None
    if precision:
        builder.from_entry("precision.autocast", dtype, precision.entry, precision.key)
    else:
        builder.default("precision.autocast", None)
    if distributed == "DEEPSPEED":
        _set_deepspeed(reading, builder, keys, project, dtype)
    elif distributed == "FSDP":
        section = keys.raw("fsdp_config")
        node = section.entry.value if section is not None and section.entry.value.is_mapping else None
        container = section or kind
        assert container is not None
        builder.from_entry("parallelism.fsdp", Fsdp(), container.entry, container.key)
        word = precision.value.lower() if precision else "no"
        apply_fsdp(builder, Section(node, "fsdp_config"), fsdp_defaults(project.versions), word)
    set_degrees(builder, keys)
    return reading


def _set_hardware(builder: JobBuilder, keys: Arguments, project: Project, distributed: str) -> None:
    """`num_processes` counts all machines' processes, one a GPU; `distributed_type: NO` runs one."""
    machines = keys.integer("num_machines", least=1)
    processes = keys.integer("num_processes", least=1)
    if distributed in _WITHOUT_GPUS or keys.is_on("use_cpu"):
        return
    stated = None
    if processes:
        stated = Stated(processes.value, processes.entry, processes.key, "one process a GPU")
    elif distributed == "NO" and (kind := keys.raw("distributed_type")) is not None:
        stated = Stated(1, kind.entry, kind.key, "not distributed")
    set_hardware(builder, project, stated, sharded=distributed != "NO")
    if project.nodes is None and machines:
        builder.from_entry("hardware.nodes", machines.value, machines.entry, machines.key)


def _set_deepspeed(reading: Reading, builder: JobBuilder, keys: Arguments, project: Project, dtype: str | None) -> None:
    job = builder.job
    origin = job.origins.get("hardware.gpus")
    values = AutoValues(
        client="accelerate",
        world_size=job.hardware.gpus if origin is not None and origin.kind != "assumed" else None,
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16",
    )
    section = keys.mapping("deepspeed_config")
    file = section.text("deepspeed_config_file")
    if file and file.value.lower() != "none":
        set_file(reading, builder, keys, section, file, project, values)
        set_init(builder, section, project.versions)
        return
    set_own(builder, keys, section, values)
    set_init(builder, section, project.versions)
    steps = section.integer("gradient_accumulation_steps", least=1)
    if steps:
        builder.from_entry("gradient_accumulation_steps", steps.value, steps.entry, steps.key)
    precision = keys.raw("mixed_precision")
    if dtype and precision is not None:
        for field, value in (
            ("weights.dtype", dtype),
            ("precision.autocast", None),
            ("precision.master_weights", True),
        ):
            builder.from_entry(field, value, precision.entry, precision.key, "DeepSpeed casts every parameter to it")


FORMAT = Format(NAME, "accelerate launch config", UPSTREAM, recognise, read, describe, edits, "`num_processes`")
