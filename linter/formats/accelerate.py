"""`accelerate launch` configs: how many processes, and how they share a model that a script brings.

The Job has no model, so no estimate is made of it; rules on the config's own facts run. Facts from accelerate 1.15.0
(`commands/launch.py`, `commands/config/config_args.py`, `utils/dataclasses.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job import Fsdp
from .accelerate_edits import describe, edits
from .arguments import Arguments, Given
from .coercion import as_integer
from .deepspeed_config import apply
from .deepspeed_reference import apply_reference
from .deepspeed_values import AutoValues, Reference
from .format import Format, JobBuilder, Problem, Reading
from .fsdp import FsdpDefaults, Section, apply_fsdp
from .keys import key_problems
from .references import plain_document
from .world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ..source.document import Document
    from .format import Project

NAME = "accelerate"
UPSTREAM = "accelerate 1.15.0"

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

_FSDP = FsdpDefaults(UPSTREAM, use_orig_params=True, cpu_ram_efficient_loading=True)
"""Defaults of the `--fsdp_*` options of `accelerate launch`."""

_DEFAULT_STAGE = 2
"""`zero_stage` of `DeepSpeedPlugin`."""

_REFUSED_BESIDE_FILE = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
    "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
"""Keys that `_deepspeed_config_checks` refuses beside `deepspeed_config_file`, as it does `mixed_precision`."""

_DEGREES = (
    ("parallelism.tensor", "parallelism_config_tp_size"),
    ("parallelism.context", "parallelism_config_cp_size"),
)


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
        apply_fsdp(builder, Section(node, "fsdp_config"), _FSDP, precision.value.lower() if precision else "no")
    _set_parallelism(builder, keys)
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
        apply_reference(reading, builder, file.entry, file.key, project, values)
        _check_beside_file(reading, keys, section, file)
        return
    _set_zero(builder, keys, section, values, dtype)


def _set_zero(builder: JobBuilder, keys: Arguments, section: Arguments, values: AutoValues, dtype: str | None) -> None:
    """The config that `DeepSpeedPlugin` makes of its own keys; sizes are DeepSpeed's defaults."""
    stage = section.integer("zero_stage", least=0)
    whole = keys.raw("deepspeed_config") or keys.raw("distributed_type")
    number = stage.value if stage and stage.value <= 3 else _DEFAULT_STAGE
    given = stage or whole
    assert given is not None
    document = plain_document({"zero_optimization": {"stage": number}}, builder.document.path)
    apply(builder, document, values, reference=Reference(given.entry, given.key, "the config accelerate makes"))
    if stage:
        builder.from_entry("parallelism.zero.stage", number, stage.entry, stage.key)
    else:
        builder.default("parallelism.zero.stage", number)
    for field, key in (
        ("parallelism.zero.offload_optimizer.device", "offload_optimizer_device"),
        ("parallelism.zero.offload_parameters.device", "offload_param_device"),
    ):
        device = section.text(key)
        if device and device.value.lower() in ("none", "cpu", "nvme"):
            builder.from_entry(field, device.value.lower(), device.entry, device.key)
        else:
            builder.default(field, "none")
    saving = section.flag("zero3_save_16bit_model")
    if saving:
        builder.from_entry("parallelism.zero.gather_16bit_weights_on_save", saving.value, saving.entry, saving.key)
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


def _check_beside_file(reading: Reading, keys: Arguments, section: Arguments, file: Given) -> None:
    """Keys that accelerate refuses beside a DeepSpeed file."""
    found = [given for key in _REFUSED_BESIDE_FILE if (given := section.raw(key)) is not None]
    precision = keys.raw("mixed_precision")
    if precision is not None and precision.value is not None:
        found.append(precision)
    for given in found:
        values = {
            "value": given.entry.value.raw,
            "other": f"deepspeed_config_file: {file.value}",
            "message": "accelerate refuses it beside a DeepSpeed file; say it there",
            "upstream": UPSTREAM,
        }
        reading.problems.append(Problem("contradiction", given.key, given.entry.value.span, values))


def _set_parallelism(builder: JobBuilder, keys: Arguments) -> None:
    section = keys.mapping("parallelism_config")
    for field, key in _DEGREES:
        given = section.integer(key, least=1)
        if given:
            builder.from_entry(field, given.value, given.entry, given.key)
        else:
            builder.default(field, 1)
    if builder.job.parallelism.tensor > 1:
        note = "Transformers' tensor parallel plan gathers the logits"
        builder.derived("loss.parallel", False, note, "parallelism.tensor")
    shard, replicas = (
        section.integer("parallelism_config_dp_shard_size", least=1),
        section.integer("parallelism_config_dp_replicate_size", least=2),
    )
    if shard and replicas and builder.job.parallelism.fsdp is not None:
        note = f"{replicas.value} replicas"
        builder.from_entry("parallelism.fsdp.shard_size", shard.value, shard.entry, shard.key, note)
    megatron = keys.mapping("megatron_lm_config")
    for field, key in (
        ("parallelism.tensor", "megatron_lm_tp_degree"),
        ("parallelism.pipeline", "megatron_lm_pp_degree"),
    ):
        given = megatron.raw(key)
        degree = as_integer(given.value) if given is not None else None
        if given is not None and degree is not None and degree >= 1:
            builder.from_entry(field, degree, given.entry, given.key)


FORMAT = Format(NAME, "accelerate launch config", UPSTREAM, recognise, read, describe, edits, "`num_processes`")
