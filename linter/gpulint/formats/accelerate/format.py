"""`accelerate launch` configs: how many processes, and how they share a model that a script brings.

The Job has no model, so no estimate is made of it; rules on the config's own facts run. Facts from accelerate 1.15.0
(`commands/launch.py`, `commands/config/config_args.py`, `utils/dataclasses.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Fsdp
from ..core.bindings.kinds import POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Derived, Fixed
from ..core.format import Format
from ..core.keys import key_problems
from ..core.sections import Sections
from ..core.world_size import Stated, set_hardware
from ..deepspeed.values import AutoValues
from .sections import NAME, TABLE, UPSTREAM, set_deepspeed, set_degrees, set_fsdp

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project, Reading

_WITHOUT_GPUS = frozenset({"XLA", "TPU", "MULTI_CPU", "MULTI_NPU", "MULTI_MLU", "MULTI_XPU", "MULTI_HPU"})
"""`distributed_type` values that run on something else."""


def read(document: Document, project: Project) -> Reading:
    """The Job of an accelerate config: processes, precision, ZeRO or FSDP; no model."""
    keys = Sections(document.root)
    reader = Reader(document, project, NAME, UPSTREAM, keys=keys)
    reader.reading.problems = key_problems(document, NAME)
    kind = reader.value(TEXT, "distributed_type", default="NO")
    reader.bind((Fixed("kind", Derived("training", "an accelerate config")), _set_gpus, TABLE.rows[0]))
    if kind == "DEEPSPEED":
        _set_deepspeed(reader, keys)
    elif kind == "FSDP":
        reader.set("parallelism.fsdp", keys.raw("fsdp_config", "distributed_type"), Fsdp())
        precision = keys.text("mixed_precision")
        set_fsdp(reader, keys, project.versions, precision.value.lower() if precision else "no")
    set_degrees(reader, keys)
    return reader.reading


def _set_gpus(reader: Reader) -> None:
    """`num_processes` counts all machines' processes, one a GPU; `distributed_type: NO` runs one."""
    machines, processes = reader.given(POSITIVE, "num_machines"), reader.given(POSITIVE, "num_processes")
    written, kind = reader.keys.raw("distributed_type"), reader.value(TEXT, "distributed_type", default="NO")
    if kind in _WITHOUT_GPUS or reader.keys.is_on("use_cpu"):
        return
    stated = None
    if processes:
        stated = Stated(processes.value, processes.entry, processes.key, "one process a GPU")
    elif written and kind == "NO":
        stated = Stated(1, written.entry, written.key, "not distributed")
    set_hardware(reader, reader.project, stated, sharded=kind != "NO")
    if reader.project.nodes is None and machines:
        reader.set("hardware.nodes", machines)


def _set_deepspeed(reader: Reader, keys: Sections) -> None:
    """ZeRO, and what DeepSpeed does with accelerate's precision where accelerate makes its config."""
    job, dtype = reader.job, reader.job.precision.autocast
    origin = job.origins.get("hardware.gpus")
    world = job.hardware.gpus if origin is not None and origin.kind != "assumed" else None
    values = AutoValues("accelerate", world_size=world, bf16=dtype == "bfloat16", fp16=dtype == "float16")
    if set_deepspeed(reader, keys, reader.reading, reader.project, values):
        return
    steps = reader.given(POSITIVE, "deepspeed_config.gradient_accumulation_steps")
    if steps:
        reader.set("gradient_accumulation_steps", steps)
    precision = keys.raw("mixed_precision")
    fields = {"weights.dtype": dtype, "precision.autocast": None, "precision.master_weights": True}
    for field, value in fields.items() if dtype else ():
        reader.set(field, precision, value, "DeepSpeed casts every parameter to it")


FORMAT = Format.of_table(NAME, "accelerate launch config", UPSTREAM, read, TABLE, "`num_processes`")
