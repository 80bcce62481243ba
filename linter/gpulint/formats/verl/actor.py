"""The actor of a verl config: the model that is trained, with FSDP or Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.sections import dtype_of
from .filling import ACTOR, MODEL, ROLLOUT, VerlFilling
from .sizes import uses_megatron

if TYPE_CHECKING:
    from ..core.sections import Sections


def set_actor(filling: VerlFilling, values: Sections) -> None:
    """Model, sharding, optimizer, adapter, activations and batches. `hardware` and sizes are set already."""
    builder = filling.builder
    model = values.text(f"{MODEL}.path")
    if model and filling.is_stated(model):
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    builder.default("weights.quantization", None)
    builder.default("attention", "flash_attention_2", "verl asks for it")
    filling.fill("liger_kernels", values.flag(f"{MODEL}.use_liger"), False)
    builder.default("compile", False)
    if uses_megatron(values):
        _set_megatron(filling, values)
    else:
        _set_fsdp(filling, values)
    fused = values.flag(f"{MODEL}.use_fused_kernels")
    if fused and fused.value:
        filling.put("loss.kernel", fused, "chunked")
        builder.default("loss.chunk", 512, "tokens a chunk (utils/experimental/torch_functional.py)")
    else:
        builder.default("loss.kernel", "torch")
    _set_adapter(filling, values)
    _set_batches(filling, values)


def _set_fsdp(filling: VerlFilling, values: Sections) -> None:
    """FSDP over weights in `model_dtype` (float32), gathered and multiplied in bfloat16, reduced in float32."""
    builder = filling.builder
    section, path = f"{ACTOR}.fsdp_config", "parallelism.fsdp."
    dtype = values.text(f"{section}.model_dtype")
    filling.fill("weights.dtype", dtype._replace(value=dtype_of(dtype) or "float32") if dtype else None, "float32")
    builder.default("precision.master_weights", False)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    builder.default("parallelism.zero", None)
    strategy = values.text(f"{ACTOR}.strategy")
    second = bool(strategy and strategy.value == "fsdp2")
    if strategy:
        filling.put(f"{path}version", strategy, 2 if second else 1)
    else:
        builder.default(f"{path}version", 1)
    reshard = values.flag(f"{section}.reshard_after_forward")
    filling.fill(f"{path}reshard_after_forward", reshard, True)
    size = values.integer(f"{section}.fsdp_size", least=1)
    whole = builder.job.hardware.gpus or 1
    builder.default(f"{path}sharding", "hybrid_shard" if size and size.value < whole else "full_shard")
    if size and size.value < whole:
        filling.put(f"{path}shard_size", size)
    builder.default(f"{path}wrap", "transformer")
    builder.default(
        f"{path}sync_each_batch", False, "verl since July 2026 (#7095); earlier ones reduce every micro batch"
    )
    builder.job.unstated.append(f"{path}sync_each_batch")
    builder.default(f"{path}upcast_trainable", False, "weights keep model_dtype")
    builder.default(f"{path}state_dict_type", "SHARDED_STATE_DICT")
    compute = values.text(f"{section}.dtype")
    half = dtype_of(compute) or "bfloat16"
    builder.default("precision.autocast", half if half in ("bfloat16", "float16") else None, "the engine's autocast")
    builder.default(f"{path}mixed_precision.param_dtype", dtype_of(compute) or "bfloat16")
    builder.default(f"{path}mixed_precision.reduce_dtype", "float32")
    filling.fill(f"{path}offload", values.flag(f"{section}.offload_policy"), False)
    filling.fill(f"{path}forward_prefetch", values.flag(f"{section}.forward_prefetch"), False)
    filling.fill(f"{path}use_orig_params", values.flag(f"{section}.use_orig_params"), False)
    checkpointing = values.flag(f"{MODEL}.enable_gradient_checkpointing")
    offload = values.flag(f"{MODEL}.enable_activation_offload")
    if offload and offload.value and (checkpointing is None or checkpointing.value):
        filling.put("activation_checkpointing", offload, "offload")
    elif checkpointing:
        filling.put("activation_checkpointing", checkpointing, "full" if checkpointing.value else "none")
    else:
        builder.default("activation_checkpointing", "full")
    builder.default("reentrant", False)
    optimizer = values.text(f"{ACTOR}.optim.optimizer")
    filling.fill("optimizer.name", optimizer._replace(value=optimizer.value.lower()) if optimizer else None, "adamw")


def _set_megatron(filling: VerlFilling, values: Sections) -> None:
    """Megatron's model code; bfloat16 weights, float32 master weights and gradients over the ranks."""
    builder = filling.builder
    section = f"{ACTOR}.megatron"
    builder.derived("framework", "megatron", "actor.strategy megatron")
    builder.default("precision.autocast", None)
    dtype = values.text(f"{section}.dtype")
    builder.default("weights.dtype", dtype_of(dtype) or "bfloat16")
    builder.default("precision.master_weights", True, "Megatron's mixed-precision optimizer")
    builder.default("precision.gradients", "float32", "verl reduces gradients in float32")
    builder.default("parallelism.fsdp", None)
    builder.default("parallelism.zero.library", "megatron")
    distributed = values.flag(f"{section}.use_distributed_optimizer")
    filling.fill(
        "parallelism.zero.stage", distributed._replace(value=int(distributed.value)) if distributed else None, 1
    )
    _set_cpu_optimizer(filling, values)
    recompute = values.text(f"{section}.override_transformer_config.recompute_granularity")
    if recompute and recompute.value in ("full", "selective"):
        filling.put("activation_checkpointing", recompute)
        if recompute.value == "selective":
            filling.put("checkpoint_policy", recompute, "core_attention")
    else:
        builder.default("activation_checkpointing", "none")
    builder.default("optimizer.name", "fused_adam", "Megatron's FusedAdam")


def _set_cpu_optimizer(filling: VerlFilling, values: Sections) -> None:
    """Megatron's optimizer in main memory, whole or by `optimizer_offload_fraction`."""
    section = f"{ACTOR}.optim.override_optimizer_config"
    offload, share = (
        values.flag(f"{section}.optimizer_cpu_offload"),
        values.number(f"{section}.optimizer_offload_fraction"),
    )
    if offload and offload.value and (share is None or share.value > 0):
        filling.put("parallelism.zero.offload_optimizer.device", offload, "cpu")
        if share:
            filling.put("parallelism.zero.offload_optimizer.ratio", share, float(min(1, share.value)))


def _set_adapter(filling: VerlFilling, values: Sections) -> None:
    """LoRA where `lora_rank` (or Megatron's `lora.rank`) is above zero."""
    builder = filling.builder
    rank = values.integer(f"{MODEL}.lora_rank" if not uses_megatron(values) else f"{MODEL}.lora.rank", least=1)
    if rank is None:
        builder.default("method", "full", "lora_rank 0")
        builder.derived("adapter", None, "no adapter", "method")
        builder.default("trainable", None, "all weights")
        return
    filling.put("method", rank, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.put("adapter.r", rank)
    filling.fill("adapter.alpha", values.number(f"{MODEL}.lora_alpha"), 16)
    builder.default("adapter.dropout", 0.0)
    targets = values.words(f"{MODEL}.target_modules")
    if targets and not uses_megatron(values) and targets.value != ["all-linear"]:
        filling.put("adapter.targets", targets)
    else:
        builder.default("adapter.targets", "all-linear")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    builder.derived("adapter.dtype", builder.job.weights.dtype, "the dtype of the weights", "weights.dtype")
    builder.derived("trainable", None, "the adapter alone", "method")


def _set_batches(filling: VerlFilling, values: Sections) -> None:
    """Rows of prompt and response; `use_dynamic_bsz` packs up to `ppo_max_token_len_per_gpu` tokens instead."""
    builder, plan = filling.builder, filling.builder.job.parallelism
    prompt = values.integer("data.max_prompt_length", least=1)
    response = values.integer("data.max_response_length", least=1)
    length = (prompt.value if prompt else 512) + (response.value if response else 512)
    if response:
        filling.put("sequence_length", response, length, "prompt and response")
    else:
        builder.default("sequence_length", length)
    ranks = max(1, (builder.job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    padding = values.flag(f"{MODEL}.use_remove_padding")
    dynamic = values.flag(f"{ACTOR}.use_dynamic_bsz")
    micro = values.integer(f"{ACTOR}.ppo_micro_batch_size_per_gpu", least=1)
    shared = values.integer(f"{ACTOR}.ppo_micro_batch_size", least=1)
    tokens = values.integer(f"{ACTOR}.ppo_max_token_len_per_gpu", least=1)
    if dynamic and dynamic.value and tokens:
        rows = max(1, round(tokens.value * plan.context / length))
        filling.put("micro_batch_size", tokens, rows, "rows of full length in the tokens of a GPU")
    elif micro:
        filling.put("micro_batch_size", micro)
    elif shared:
        filling.put("micro_batch_size", shared, max(1, shared.value // ranks), f"over {ranks} ranks")
    else:
        builder.assumed("micro_batch_size", None, "neither ppo_micro_batch_size_per_gpu nor use_dynamic_bsz")
    if padding and padding.value:
        filling.put("packing", padding)
    else:
        builder.default("packing", False)
    builder.default("padded", not (padding and padding.value), "rows have prompt and response at full length")
    mini = values.integer(f"{ACTOR}.ppo_mini_batch_size", least=1)
    several = values.integer(f"{ROLLOUT}.n", least=1)
    rows = (mini.value if mini else 256) * (several.value if several else 1)
    steps = max(1, rows // (ranks * (builder.job.micro_batch_size or 1)))
    if mini:
        filling.put("gradient_accumulation_steps", mini, steps, f"{rows} rows over {ranks} ranks")
    else:
        builder.default("gradient_accumulation_steps", steps)
