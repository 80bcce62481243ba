"""verl's supervised fine-tuning: `sft_trainer.yaml` of `fsdp_sft_trainer.py`, and `sft_trainer_engine.yaml`.

Facts from verl 0.10.0.dev (trainer/sft_trainer.py, trainer/config/sft_trainer_engine.yaml, trainer/config/engine/)
and, for the older trainer, from 0.7.0, the last that has it (trainer/fsdp_sft_trainer.py, trainer/config/
sft_trainer.yaml), read statically. The older one names its model in `model.partial_pretrain`; the newer one has an
`engine` section and says its GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import default_of
from ...upstream.verl import SFT_DEFAULTS
from ..core.format import Format, Reading, written_by
from ..core.interpolation import interpolated
from ..core.native import NativeConfig
from ..core.placeholders import is_blank
from ..core.sections import DTYPES, Filling, Sections
from ..core.world_size import Stated, set_hardware
from .keys import verl_problems

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "verl_sft"
UPSTREAM = "verl 0.10.0.dev"


def recognise(document: Document) -> bool:
    """`data` with verl's batch keys beside `model.partial_pretrain`, or `model.path` and an `engine`."""
    root = document.root
    data = root.get("data")
    if document.syntax not in ("yaml", "flags") or data is None or not data.is_mapping:
        return document.syntax == "flags" and root.find("model.partial_pretrain") is not None
    if root.get("actor_rollout_ref") is not None or "train_batch_size" not in data.keys():  # noqa: SIM118
        return False
    return root.find("model.partial_pretrain") is not None or root.get("optim") is not None


def read(document: Document, project: Project) -> Reading:
    """The Job of a fine-tune."""
    config = NativeConfig(NAME, UPSTREAM, interpolated(document), project, None)
    config.reading.config = document
    builder = config.builder
    values, filling = Sections(config.document.root), Filling(builder)
    newer = values.raw("model.partial_pretrain") is None
    builder.derived("kind", "training", "a run of verl's SFT trainer")
    builder.derived("objective", "sft", "verl's SFT trainer")
    path = values.text("model.partial_pretrain", "model.path")
    if path and not is_blank(path.value):
        filling.put("model", path)
    else:
        builder.assumed("model", None, "the model is to be filled in")
    each, nodes = values.integer("trainer.n_gpus_per_node", least=1), values.integer("trainer.nnodes", least=1)
    count = nodes.value if nodes else 1
    stated = Stated(each.value * count, each.entry, each.key, f"GPUs x {count} nodes") if each else None
    set_hardware(builder, project, stated, sharded=True)
    _set_sharding(filling, values, project.versions.get("verl", ""), newer=newer)
    _set_adapter(filling, values)
    _set_batches(filling, values, newer=newer)
    checkpointing = values.flag("model.enable_gradient_checkpointing")
    offload = values.is_on("model.enable_activation_offload")
    release = project.versions.get("verl", "")
    usual = default_of(SFT_DEFAULTS, release, "enable_gradient_checkpointing", True)
    on = checkpointing.value if checkpointing else usual
    mode = ("offload" if offload else "full") if on else "none"
    if checkpointing:
        filling.put("activation_checkpointing", checkpointing, mode)
    else:
        builder.default("activation_checkpointing", mode)
    builder.default("attention", "flash_attention_2", "attn_implementation of the trainer")
    liger, fused = values.flag("model.use_liger"), values.flag("model.use_fused_kernels")
    if liger and liger.value:
        filling.put("loss.kernel", liger, "liger")
    elif fused and fused.value:
        filling.put("loss.kernel", fused, "chunked")
    config.fill()
    config.reading.problems += verl_problems(document, NAME)
    return config.reading


def _set_sharding(filling: Filling, values: Sections, release: str, *, newer: bool) -> None:
    """FSDP over all ranks, one unit a layer; bfloat16 is computed in, and sums are reduced in float32."""
    builder = filling.builder
    section = "engine" if newer else "model.fsdp_config"
    dtype = values.text(f"{section}.model_dtype")
    filling.fill(
        "weights.dtype", dtype._replace(value=DTYPES.get(dtype.value, "float32")) if dtype else None, "float32"
    )
    builder.default("precision.autocast", "bfloat16", "the trainer's autocast")
    ulysses = values.integer("engine.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size", least=1)
    filling.fill("parallelism.context", ulysses, 1)
    if (builder.job.hardware.gpus or 1) < 2:
        builder.default("parallelism.fsdp", None, "one GPU")
        return
    strategy = values.text("engine.strategy", "model.strategy")
    fsdp = "parallelism.fsdp."
    stated = strategy._replace(value=2 if "2" in strategy.value else 1) if strategy else None
    filling.fill(f"{fsdp}version", stated, 1 if newer else default_of(SFT_DEFAULTS, release, "fsdp_version", 2))
    for name, value in (("sharding", "full_shard"), ("wrap", "transformer")):
        builder.default(f"{fsdp}{name}", value)
    builder.default(f"{fsdp}sync_each_batch", not newer, "the engine defers since July 2026 (#7095), the trainer never")
    if newer:
        builder.job.unstated.append(f"{fsdp}sync_each_batch")
    builder.default(f"{fsdp}mixed_precision.param_dtype", "bfloat16")
    builder.default(f"{fsdp}mixed_precision.reduce_dtype", "float32")
    filling.fill(f"{fsdp}offload", values.flag("engine.offload_policy", "model.fsdp_config.cpu_offload"), False)


def _set_adapter(filling: Filling, values: Sections) -> None:
    builder = filling.builder
    rank = values.integer("model.lora_rank", least=1)
    if rank is None:
        builder.default("method", "full", "lora_rank 0")
        return
    filling.put("method", rank, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.put("adapter.r", rank)
    filling.fill("adapter.alpha", values.number("model.lora_alpha"), 16)
    targets = values.words("model.target_modules")
    if targets and targets.value != ["all-linear"]:
        filling.put("adapter.targets", targets)
    else:
        builder.default("adapter.targets", "all-linear")


def _set_batches(filling: Filling, values: Sections, *, newer: bool) -> None:
    """Rows of `max_length`; with `use_dynamic_bsz` as many as `max_token_len_per_gpu` holds."""
    builder = filling.builder
    job = builder.job
    length = values.integer("data.max_length", least=1)
    filling.fill("sequence_length", length, 1024)
    dynamic = values.flag("data.use_dynamic_bsz")
    micro, tokens = values.integer("data.micro_batch_size_per_gpu", least=1), None
    if dynamic.value if dynamic else newer:
        tokens = values.integer("data.max_token_len_per_gpu", least=1)
        rows = max(1, (tokens.value if tokens else 8192) * job.parallelism.context // (job.sequence_length or 1))
        if tokens:
            filling.put("micro_batch_size", tokens, rows, "rows of full length in the tokens of a GPU")
        else:
            builder.default("micro_batch_size", rows, "max_token_len_per_gpu 8192")
        builder.derived("packing", True, "rows are packed", "micro_batch_size")
    else:
        filling.fill("micro_batch_size", micro, 4)
        builder.default("padded", True, "rows are padded to max_length")
    whole = values.integer("data.train_batch_size", least=1)
    ranks = max(1, (job.hardware.gpus or 1) // job.parallelism.context)
    steps = max(1, (whole.value if whole else 256) // (ranks * (job.micro_batch_size or 1)))
    if whole:
        filling.put("gradient_accumulation_steps", whole, steps, f"over {ranks} ranks")
    else:
        builder.default("gradient_accumulation_steps", steps, "train_batch_size 256")


describe, edits = written_by("verl.sft_edits")


FORMAT = Format(
    NAME, "verl SFT config", UPSTREAM, recognise, read, describe, edits,
    "`trainer.n_gpus_per_node` x `trainer.nnodes`; the launcher of the older trainer",
)  # fmt: skip
