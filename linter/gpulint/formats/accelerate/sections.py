"""What the sections of an accelerate config mean for a Job, whoever wrote them: a file, or options of a command.

Facts from accelerate 1.15.0 (`utils/dataclasses.py: DeepSpeedPlugin`, `ParallelismConfig`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import accelerate, transformers
from ...upstream.behaviour import default_of
from ..core.coercion import as_integer
from ..core.format import Problem
from ..core.references import plain_document
from ..deepspeed.config import apply
from ..deepspeed.reference import apply_reference
from ..deepspeed.values import AutoValues, Reference
from ..hf_trainer.fsdp import FsdpDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.arguments import Arguments, Given
    from ..core.format import JobBuilder, Project, Reading

UPSTREAM = "accelerate 1.15.0"


def fsdp_defaults(versions: Mapping[str, str]) -> FsdpDefaults:
    """What accelerate's FSDP plugin takes where a section is silent, in the release that is stated."""
    whole = default_of(accelerate.DEFAULTS, versions.get(accelerate.NAME), "fsdp_use_orig_params", True)
    return FsdpDefaults(UPSTREAM, use_orig_params=whole, cpu_ram_efficient_loading=True)


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


def set_own(builder: JobBuilder, keys: Arguments, section: Arguments, values: AutoValues) -> None:
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


def set_init(builder: JobBuilder, section: Arguments, versions: Mapping[str, str]) -> None:
    """Whether stage 3 divides the weights as they are made, by `zero3_init_flag` and the releases that are stated.

    Where a release of transformers stands alone, accelerate's is taken to be of its time, and `unstated`.
    """
    zero = builder.job.parallelism.zero
    if zero is None or zero.stage != 3:
        return
    flag = section.flag("zero3_init_flag")
    ours, theirs = versions.get(accelerate.NAME), versions.get(transformers.NAME)
    if flag.value if flag else default_of(accelerate.DEFAULTS, ours, "zero3_init_flag", newest=True):
        return
    known = bool(ours) or not theirs or transformers.NEEDS_ACCELERATE_1_1.at(theirs)
    ignored = accelerate.ZERO3_INIT_ALWAYS
    whole = not ignored.at(ours) if ours else transformers.BEFORE_ACCELERATE_1_0.at(theirs)
    note = f"before accelerate {ignored.since} each rank makes the whole model first; later ones ignore the flag"
    if flag:
        builder.from_entry("parallelism.zero.init", not whole, flag.entry, flag.key, note)
    else:
        builder.default("parallelism.zero.init", not whole)
    if not known:
        builder.job.unstated.append("parallelism.zero.init")


def set_file(
    reading: Reading,
    builder: JobBuilder,
    keys: Arguments,
    section: Arguments,
    file: Given,
    project: Project,
    values: AutoValues,
    path: str | None = None,
) -> None:
    """The DeepSpeed file that `deepspeed_config_file` names, and the keys that accelerate refuses beside it.

    It refuses those of the config file, `path`, not options of its command line (`ACCELERATE_CONFIG_DS_FIELDS`).
    """
    apply_reference(reading, builder, file.entry, file.key, project, values)
    found = [given for key in _REFUSED_BESIDE_FILE if (given := section.raw(key)) is not None]
    precision = keys.raw("mixed_precision")
    if precision is not None and precision.value is not None:
        found.append(precision)
    for given in (given for given in found if given.entry.key.path == path):
        words = {
            "value": given.entry.value.raw,
            "other": f"deepspeed_config_file: {file.value}",
            "message": "accelerate refuses it beside a DeepSpeed file; say it there",
            "upstream": UPSTREAM,
        }
        span = given.entry.value.span
        reading.problems.append(Problem("contradiction", given.key, span, words, given.entry.key.path))


def set_degrees(builder: JobBuilder, keys: Arguments) -> None:
    """Tensor, context and pipeline parallel degrees, and the replicas of a sharded run."""
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
