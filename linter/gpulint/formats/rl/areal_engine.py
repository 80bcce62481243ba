"""The engine that trains an AReaL model: FSDP2, Megatron or Archon; its optimizer, adapter and checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.sections import dtype_of
from ..megatron.model import MODULES

if TYPE_CHECKING:
    from ..core.sections import Filling, Sections

_OPTIMIZERS = {"adam": "adamw_torch_fused", "adam_bf16": "adamw_torch_fused", "sgd": "sgd"}


def set_engine(filling: Filling, values: Sections, section: str, backend: str) -> None:
    """Weights in `dtype`, and what the engine keeps beside them."""
    builder = filling.builder
    dtype = values.text(f"{section}.dtype")
    if dtype and dtype_of(dtype):
        filling.put("weights.dtype", dtype, dtype_of(dtype))
    else:
        builder.default("weights.dtype", "bfloat16")
    builder.default("weights.quantization", None)
    builder.default("precision.autocast", None)
    builder.default("compile", False)
    builder.default("liger_kernels", False)
    builder.default("loss.kernel", "torch")
    if backend == "megatron":
        _set_megatron(filling, values, f"{section}.megatron")
    else:
        _set_fsdp(filling, values, section, backend)
    _set_checkpointing(filling, values, section, backend)
    _set_optimizer(filling, values, section)
    _set_adapter(filling, values, section)


def _set_fsdp(filling: Filling, values: Sections, section: str, backend: str) -> None:
    """FSDP2 over weights in `dtype`; states and gradients have it, too, and are reduced in `grad_reduce_dtype`."""
    builder, path = filling.builder, "parallelism.fsdp."
    builder.default("parallelism.zero", None)
    builder.default("precision.master_weights", False)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    for name, value in (("version", 2), ("sharding", "full_shard"), ("wrap", "transformer")):
        builder.default(f"{path}{name}", value, "apply_fsdp2")
    builder.default(f"{path}reshard_after_forward", True, "parallelize_model")
    builder.default(f"{path}upcast_trainable", False, "weights keep `dtype`")
    builder.default(f"{path}sync_each_batch", True, "gradients are reduced after every micro batch")
    builder.default(f"{path}mixed_precision.param_dtype", builder.job.weights.dtype)
    reduced = values.text(f"{section}.grad_reduce_dtype")
    builder.default(f"{path}mixed_precision.reduce_dtype", "float32")
    if reduced and dtype_of(reduced):
        filling.put(f"{path}mixed_precision.reduce_dtype", reduced, dtype_of(reduced))
    own = "archon" if backend == "archon" else "fsdp"
    filling.fill(f"{path}offload", values.flag(f"{section}.{own}.offload_params"), False)
    streamed = values.flag(f"{section}.fsdp.per_layer_optim_step")
    filling.fill("optimizer.between_steps_offloaded", streamed, False)
    compiled = values.flag(f"{section}.archon.enable_compile")
    if backend == "archon" and compiled:
        filling.put("compile", compiled)
    filling.fill("attention", values.text(f"{section}.attn_impl"), "flash_attention_2")


def _set_megatron(filling: Filling, values: Sections, section: str) -> None:
    """Megatron's model code; float32 master weights and gradients, states over the data parallel ranks."""
    builder = filling.builder
    builder.derived("framework", "megatron", "backend megatron")
    builder.default("attention", "flash_attention_2", "TransformerEngine's")
    builder.default("precision.master_weights", True, "Megatron's mixed-precision optimizer")
    builder.default("precision.gradients", "float32", "grad_reduce_in_fp32")
    half = values.flag(f"{section}.ddp.grad_reduce_in_fp32")
    if half and not half.value:
        filling.put("precision.gradients", half, builder.job.weights.dtype)
    builder.default("parallelism.fsdp", None)
    builder.default("parallelism.zero.library", "megatron")
    spread = values.flag(f"{section}.ddp.use_distributed_optimizer")
    filling.fill("parallelism.zero.stage", spread._replace(value=int(spread.value)) if spread else None, 1)
    stages = values.integer(f"{section}.virtual_pipeline_parallel_size", least=1)
    filling.fill("parallelism.virtual_stages", stages, 1)


def _set_checkpointing(filling: Filling, values: Sections, section: str, backend: str) -> None:
    """`gradient_checkpointing` turns it on; Megatron and Archon say which kind, every layer and chosen operations."""
    builder, on = filling.builder, values.flag(f"{section}.gradient_checkpointing")
    builder.default("reentrant", False)
    if on is None or not on.value:
        filling.fill("activation_checkpointing", on._replace(value="none") if on else None, "none")
        return
    kind = {"megatron": "megatron.recompute_granularity", "archon": "archon.ac_mode"}.get(backend)
    named = values.text(f"{section}.{kind}") if kind else None
    mode = named.value if named else "selective" if backend == "archon" else "full"
    filling.put("activation_checkpointing", named or on, mode if mode in ("full", "none") else "selective")
    if mode == "selective" and backend == "megatron":
        filling.put("checkpoint_policy", named or on, "core_attention")


def _set_optimizer(filling: Filling, values: Sections, section: str) -> None:
    builder, kind = filling.builder, values.text(f"{section}.optimizer.type")
    name = kind.value.lower() if kind else "adam"
    megatron = builder.job.framework == "megatron"
    chosen = "fused_adam" if megatron and name != "sgd" else _OPTIMIZERS.get(name, name)
    filling.fill("optimizer.name", kind._replace(value=chosen) if kind else None, chosen)
    if kind and name == "adam_bf16":
        filling.put("optimizer.state_dtype", kind, "bfloat16")


def _set_adapter(filling: Filling, values: Sections, section: str) -> None:
    """LoRA with `use_lora`, in the dtype of the weights (autocast_adapter_dtype false)."""
    builder, on = filling.builder, values.flag(f"{section}.use_lora")
    if on is None or not on.value:
        filling.fill("method", on._replace(value="full") if on else None, "full")
        builder.derived("adapter", None, "no adapter", "method")
        return
    filling.put("method", on, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.fill("adapter.r", values.integer(f"{section}.lora_rank", least=1), 32)
    filling.fill("adapter.alpha", values.number(f"{section}.lora_alpha"), 16.0)
    builder.default("adapter.dropout", 0.0)
    targets = values.words(f"{section}.target_modules")
    if targets and targets.value != ["all-linear"]:
        filling.put("adapter.targets", targets, [own for name in targets.value for own in MODULES.get(name, (name,))])
    elif targets:
        filling.put("adapter.targets", targets, "all-linear")
    else:
        builder.default("adapter.targets", None, "what PEFT targets in this architecture")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    builder.derived("adapter.dtype", builder.job.weights.dtype, "the dtype of the weights", "weights.dtype")
