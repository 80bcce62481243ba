"""SkyRL: overrides of its trainer's config (`-m skyrl.train.entrypoints.main_base`), FSDP2 or Megatron with vLLM.

Facts from SkyRL 0.3.0 (`train/config/config.py`, `backends/skyrl_train/workers/fsdp/fsdp_worker.py`,
`distributed/fsdp_strategy.py`, `workers/model_wrapper.py`, `workers/worker_dispatch.py`), read statically; keys without
`inference_engine` are those of skyrl-train 0.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, JobBuilder, NoJobError, Problem, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Filling, Sections, dtype_of
from ..core.spelling import slip
from ..core.world_size import Stated, set_hardware
from .skyrl_rollout import set_batches, set_rollout

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "skyrl"
UPSTREAM = "SkyRL 0.3.0"
VERSIONS = {"transformers": "5.8.0", "vllm": "0.26.0", "torch": "2.11.0", "peft": "0.18.1"}
"""What its pyproject.toml pins, the newest where it gives a range."""

POLICY = "trainer.policy"
_MODEL = "Qwen/Qwen2.5-1.5B-Instruct"

_ADVANTAGES = {"gae": "ppo", "rloo": "rloo"}
"""`advantage_estimator` -> objective; every other one has no critic, as GRPO."""


def recognise(document: Document) -> bool:
    """`trainer.policy` beside `generator.n_samples_per_prompt` or the placement of its models."""
    root = document.root
    if document.syntax == "flags":
        return True
    policy = root.find("trainer.policy.model")
    return policy is not None and (
        root.find("trainer.placement") is not None or root.find("generator.n_samples_per_prompt") is not None
    )


def read(document: Document, project: Project) -> Reading:
    """The Job of the policy that is trained. Raises NoJobError for a strategy that is not known."""
    filled = interpolated(document)
    values = Sections(filled.root)
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    filling = Filling(builder)
    strategy = values.text("trainer.strategy")
    if strategy and strategy.value not in ("fsdp", "fsdp2", "megatron"):
        raise NoJobError(document.path, f"strategy {strategy.value}, which gpulint does not know of SkyRL")
    megatron = bool(strategy and strategy.value == "megatron")
    builder.derived("kind", "training", "a run of SkyRL's trainer")
    builder.versions(VERSIONS, project.versions, f"what {UPSTREAM} runs on")
    estimator = values.text("trainer.algorithm.advantage_estimator")
    objective = _ADVANTAGES.get(estimator.value, "grpo") if estimator else "grpo"
    filling.fill("objective", estimator._replace(value=objective) if estimator else None, "grpo")
    filling.fill("model", values.text(f"{POLICY}.model.path"), _MODEL)
    builder.default("weights.quantization", None)
    builder.default("liger_kernels", False)
    builder.default("compile", False)
    builder.default("loss.kernel", "torch")
    builder.default("allocator.expandable_segments", True, "trainer.use_expandable_segments")
    segments = values.flag("trainer.use_expandable_segments")
    if segments:
        filling.put("allocator.expandable_segments", segments)
    _set_sizes(filling, values, project, megatron=megatron)
    if megatron:
        _set_megatron(filling, values)
    else:
        _set_fsdp(filling, values)
    _set_adapter(filling, values, megatron=megatron)
    set_batches(filling, values)
    set_rollout(filling, values)
    reading.problems = _key_problems(document, own=not project.program or _BASE in project.program)
    return reading


def _set_sizes(filling: Filling, values: Sections, project: Project, *, megatron: bool) -> None:
    """The GPUs of the policy, and Megatron's degrees or Ulysses' between them."""
    builder, place = filling.builder, "trainer.placement.policy_num_"
    each, nodes = values.integer(f"{place}gpus_per_node", least=1), values.integer(f"{place}nodes", least=1)
    count = nodes.value if nodes else 1
    stated = Stated(each.value * count, each.entry, each.key, f"GPUs x {count} nodes") if each else None
    set_hardware(builder, project, stated, sharded=False)
    if project.nodes is None:
        filling.fill("hardware.nodes", nodes, 1)
    section = f"{POLICY}.megatron_config."
    for name, key in (
        ("tensor", "tensor_model_parallel_size"),
        ("pipeline", "pipeline_model_parallel_size"),
        ("expert", "expert_model_parallel_size"),
        ("expert_tensor", "expert_tensor_parallel_size"),
    ):
        default = None if name == "expert_tensor" else 1
        filling.fill(f"parallelism.{name}", values.integer(section + key, least=1) if megatron else None, default)
    context = f"{section}context_parallel_size" if megatron else f"{POLICY}.sequence_parallel_size"
    filling.fill("parallelism.context", values.integer(context, least=1), 1)
    spread = megatron and builder.job.parallelism.tensor > 1
    builder.default("parallelism.sequence", spread, "on where tensor parallelism is" if spread else "")


def _set_fsdp(filling: Filling, values: Sections) -> None:
    """FSDP2 over float32 weights, gathered in bfloat16 and reduced in float32; AdamW of PyTorch."""
    builder, path, section = filling.builder, "parallelism.fsdp.", f"{POLICY}.fsdp_config"
    builder.derived("weights.dtype", "float32", "weights that are trained are loaded in float32")
    builder.default("precision.autocast", None)
    builder.default("precision.master_weights", False)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    builder.default("parallelism.zero", None)
    for name, value in (
        ("version", 2),
        ("wrap", "transformer"),
        ("upcast_trainable", False),
        ("sync_each_batch", True),
    ):
        builder.default(f"{path}{name}", value)
    reshard = values.flag(f"{section}.reshard_after_forward")
    filling.fill(f"{path}reshard_after_forward", reshard, True)
    size = values.integer(f"{section}.fsdp_size", least=1)
    part = bool(size and size.value < (builder.job.hardware.gpus or 1))
    builder.default(f"{path}sharding", "hybrid_shard" if part else "full_shard")
    if size and part:
        filling.put(f"{path}shard_size", size)
    for name, usual in (("param_dtype", "bfloat16"), ("reduce_dtype", "float32")):
        given = values.text(f"{section}.mixed_precision.{name}")
        dtype = dtype_of(given)
        filling.fill(f"{path}mixed_precision.{name}", given._replace(value=dtype) if given and dtype else None, usual)
    filling.fill(f"{path}offload", values.flag(f"{section}.cpu_offload"), False)
    builder.default("optimizer.name", "adamw_torch", "fsdp_strategy.py")
    on = values.flag("trainer.gradient_checkpointing")
    mode = "none" if on and not on.value else "full"
    filling.fill("activation_checkpointing", on._replace(value=mode) if on else None, mode)
    filling.fill("reentrant", values.flag("trainer.gradient_checkpointing_use_reentrant"), False)
    flash = values.flag("trainer.flash_attn")
    kind = "sdpa" if flash and not flash.value else "flash_attention_2"
    filling.fill("attention", flash._replace(value=kind) if flash else None, kind)


def _set_megatron(filling: Filling, values: Sections) -> None:
    """Megatron's model code over bfloat16 weights; float32 main weights and gradients, divided over the ranks."""
    builder, section = filling.builder, f"{POLICY}.megatron_config"
    builder.derived("framework", "megatron", "strategy megatron")
    builder.default("weights.dtype", "bfloat16")
    builder.default("precision.autocast", None)
    builder.default("precision.master_weights", True, "Megatron's mixed-precision optimizer")
    reduced = values.flag(f"{section}.ddp_config.grad_reduce_in_fp32")
    kind = "bfloat16" if reduced and not reduced.value else "float32"
    filling.fill("precision.gradients", reduced._replace(value=kind) if reduced else None, kind)
    builder.default("parallelism.fsdp", None)
    builder.default("parallelism.zero.library", "megatron")
    builder.default("parallelism.zero.stage", 1, "use_distributed_optimizer")
    own = f"{section}.optimizer_config_kwargs"
    offload, share = values.flag(f"{own}.optimizer_cpu_offload"), values.number(f"{own}.optimizer_offload_fraction")
    if offload and offload.value and share and share.value > 0:
        filling.put("parallelism.zero.offload_optimizer.device", offload, "cpu")
        filling.put("parallelism.zero.offload_optimizer.ratio", share, float(min(1, share.value)))
    builder.default("optimizer.name", "fused_adam", "Megatron's FusedAdam")
    recompute = values.raw(f"{section}.transformer_config_kwargs.recompute_granularity")
    mode = (
        recompute.value if recompute and recompute.value in ("full", "selective") else "none" if recompute else "full"
    )
    filling.fill("activation_checkpointing", recompute._replace(value=mode) if recompute else None, mode)
    if mode == "selective":
        builder.default("checkpoint_policy", "core_attention", "recompute_modules core_attn")
    builder.default("reentrant", False)
    builder.default("attention", "flash_attention_2", "TransformerEngine's")


def _set_adapter(filling: Filling, values: Sections, *, megatron: bool) -> None:
    """LoRA where its rank is above zero."""
    builder, lora = filling.builder, f"{POLICY}.model.lora"
    rank = values.integer(f"{lora}.rank", least=1)
    builder.default("trainable", None)
    if rank is None:
        builder.default("method", "full", "lora.rank 0")
        builder.derived("adapter", None, "no adapter", "method")
        return
    filling.put("method", rank, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.put("adapter.r", rank)
    filling.fill("adapter.alpha", values.number(f"{lora}.alpha"), 16)
    filling.fill("adapter.dropout", values.number(f"{lora}.dropout"), 0.0)
    targets = values.words(f"{lora}.target_modules")
    if targets and targets.value != ["all-linear"] and not megatron:
        filling.put("adapter.targets", targets)
    else:
        builder.default("adapter.targets", "all-linear")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    builder.derived("adapter.dtype", builder.job.weights.dtype, "the dtype of the weights", "weights.dtype")


def _key_problems(document: Document, *, own: bool) -> list[Problem]:
    """Unknown keys and mistyped values. Entry points other than SkyRL's `own` derive configs with more keys: there only
    a slip of a known one is reported, as at the top. The value of an override is YAML: `[0]` is a list, `null` nothing.
    """
    return [
        item
        for item in key_problems(document, NAME)
        if not (item.kind == "wrong-type" and str(item.values["found"]).startswith(_YAML))
        and (
            item.kind != "unknown-key" or (own and "." in item.key) or slip(item.key, item.values["suggestion"] or "?")
        )
    ]


_BASE = "entrypoints.main_base"
_YAML = ("[", "{", "null")


describe, edits = written_by("rl.skyrl_edits")


FORMAT = Format(
    NAME, "SkyRL config", UPSTREAM, recognise, read, describe, edits,
    "`trainer.placement.policy_num_gpus_per_node`, `policy_num_nodes`",
)  # fmt: skip
