"""The trained policy of a NeMo RL config: model, sharding by DTensor or Megatron, optimizer, adapter, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.sections import dtype_of

if TYPE_CHECKING:
    from ..core.sections import Filling, Sections

MEGATRON = "policy.megatron_cfg"
DTENSOR = "policy.dtensor_cfg"


def uses_megatron(values: Sections) -> bool:
    """Whether Megatron trains; DTensor does unless it is switched off."""
    return values.is_on(f"{MEGATRON}.enabled")


def set_policy(filling: Filling, values: Sections) -> None:
    """Fill all that says how the policy is trained. `hardware` and `parallelism` sizes are set already."""
    builder = filling.builder
    model = values.text("policy.model_name")
    if model:
        filling.put("model", model)
    else:
        builder.assumed("model", None, "no key names the model")
    precision = values.text("policy.precision")
    dtype = dtype_of(precision) or "bfloat16"
    builder.default("weights.quantization", None)
    builder.default("attention", "flash_attention_2" if uses_megatron(values) else "sdpa", "what its workers ask for")
    builder.default("liger_kernels", False)
    builder.default("compile", False)
    if uses_megatron(values):
        _set_megatron(filling, values, dtype)
    else:
        _set_dtensor(filling, values, dtype)
    _set_adapter(filling, values)
    _set_batches(filling, values)


def _set_dtensor(filling: Filling, values: Sections, dtype: str) -> None:
    """FSDP2 over weights that are always loaded in float32; they are gathered and multiplied in `precision`."""
    builder = filling.builder
    path = "parallelism.fsdp."
    builder.default("versions.transformers", "5.12.1", "what its Automodel pins")
    autocast = dtype if dtype in ("bfloat16", "float16") else None
    builder.derived("precision.autocast", autocast, "the workers train under autocast in policy.precision")
    builder.default("weights.dtype", "float32", "the workers load float32 master weights")
    builder.default("precision.master_weights", False)
    builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    builder.default("parallelism.zero", None)
    builder.default(f"{path}version", 2)
    builder.default(f"{path}sharding", "full_shard")
    builder.default(f"{path}wrap", "transformer")
    builder.default(f"{path}reshard_after_forward", True)
    builder.default(f"{path}upcast_trainable", False, "weights are float32 already")
    builder.default(f"{path}sync_each_batch", True, "gradients are reduced after every micro batch")
    builder.default(f"{path}state_dict_type", "SHARDED_STATE_DICT")
    builder.derived(f"{path}mixed_precision.param_dtype", dtype, "policy.precision")
    builder.default(f"{path}mixed_precision.reduce_dtype", "float32")
    filling.fill(f"{path}offload", values.flag(f"{DTENSOR}.cpu_offload"), False)
    checkpointing = values.raw(f"{DTENSOR}.activation_checkpointing")
    if checkpointing and checkpointing.value is not None:
        word = str(checkpointing.value).lower()
        filling.put(
            "activation_checkpointing", checkpointing, {"true": "full", "selective": "selective"}.get(word, "none")
        )
    else:
        builder.default("activation_checkpointing", "none")
    builder.default("reentrant", False)
    optimizer = values.text("policy.optimizer.name")
    if optimizer:
        last = optimizer.value.rpartition(".")[2].lower()
        fused = values.is_on("policy.optimizer.kwargs.fused")
        name = "fused_adam" if last == "fusedadam" else "adamw_torch_fused" if fused else last
        filling.put("optimizer.name", optimizer, name)
    else:
        builder.assumed("optimizer.name", "adamw_torch", "no `policy.optimizer`")
    foreach = values.flag("policy.optimizer.kwargs.foreach")
    if foreach:
        filling.put("optimizer.foreach", foreach)
    elif builder.job.parallelism.tensor > 1:
        builder.derived("optimizer.foreach", False, "its Automodel turns it off under tensor parallelism")
    else:
        builder.default("optimizer.foreach", None)
    builder.default("loss.kernel", "torch")
    builder.derived("loss.upcast", "loss", "logits become float32 (output_dtype)")


def _set_megatron(filling: Filling, values: Sections, dtype: str) -> None:
    """Megatron's model code and distributed optimizer: 16-bit weights, float32 master weights over the ranks."""
    builder = filling.builder
    builder.derived("framework", "megatron", "policy.megatron_cfg.enabled")
    builder.default("precision.autocast", None)
    builder.derived("weights.dtype", dtype, "policy.precision")
    builder.default("precision.master_weights", True, "Megatron's mixed-precision optimizer")
    reduce = values.flag(f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32")
    if reduce:
        filling.put("precision.gradients", reduce, "float32" if reduce.value else dtype)
    else:
        builder.default("precision.gradients", dtype)
    builder.default("parallelism.fsdp", None)
    distributed = values.flag(f"{MEGATRON}.optimizer.use_distributed_optimizer")
    builder.default("parallelism.zero.library", "megatron")
    if distributed:
        filling.put("parallelism.zero.stage", distributed, 1 if distributed.value else 0)
    else:
        builder.default("parallelism.zero.stage", 1)
    offload = values.flag(f"{MEGATRON}.optimizer.optimizer_cpu_offload")
    share = values.number(f"{MEGATRON}.optimizer.optimizer_offload_fraction")
    if offload and offload.value and (share is None or share.value > 0):
        filling.put("parallelism.zero.offload_optimizer.device", offload, "cpu")
        if share:
            filling.put("parallelism.zero.offload_optimizer.ratio", share)
    checkpointing = values.flag(f"{MEGATRON}.activation_checkpointing")
    granularity = values.text(f"{MEGATRON}.recompute_granularity")
    if checkpointing and checkpointing.value and granularity and granularity.value == "selective":
        filling.put("activation_checkpointing", granularity, "selective")
        filling.put("checkpoint_policy", granularity, "core_attention")
    else:
        mode = "full" if checkpointing and checkpointing.value else "none"
        filling.fill("activation_checkpointing", checkpointing._replace(value=mode) if checkpointing else None, "none")
    optimizer = values.text(f"{MEGATRON}.optimizer.optimizer")
    if optimizer:
        filling.put("optimizer.name", optimizer, {"adam": "fused_adam"}.get(optimizer.value, optimizer.value))
    else:
        builder.default("optimizer.name", "fused_adam")
    eight = values.flag(f"{MEGATRON}.fp8_cfg.enabled")
    if eight and eight.value:
        filling.put("precision.compute", eight, "float8-te")
    fused = values.flag(f"{MEGATRON}.use_fused_linear_logprobs")
    if fused and fused.value:
        filling.put("loss.kernel", fused, "chunked")
        filling.fill("loss.chunk", values.integer(f"{MEGATRON}.fused_linear_logprobs_chunk_size", least=1), 256)
    else:
        builder.default("loss.kernel", "torch")


def _set_adapter(filling: Filling, values: Sections) -> None:
    builder = filling.builder
    section = f"{MEGATRON}.peft" if uses_megatron(values) else f"{DTENSOR}.lora_cfg"
    enabled = values.flag(f"{section}.enabled")
    if not enabled or not enabled.value:
        builder.default("method", "full")
        builder.derived("adapter", None, "no adapter", "method")
        builder.default("trainable", None, "all weights")
        return
    filling.put("method", enabled, "lora")
    builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.fill("adapter.r", values.integer(f"{section}.dim", least=1), 8)
    filling.fill("adapter.alpha", values.number(f"{section}.alpha"), 32)
    filling.fill("adapter.dropout", values.number(f"{section}.dropout"), 0.0)
    targets, every = values.words(f"{section}.target_modules"), values.flag(f"{section}.match_all_linear")
    if targets and not (every and every.value) and not uses_megatron(values):
        names = [name.removeprefix("*.").removeprefix("*") for name in targets.value]
        filling.put("adapter.targets", targets, names if all(names) else "all-linear")
    elif every:
        filling.put("adapter.targets", every, "all-linear")
    else:
        builder.default("adapter.targets", "all-linear", "all linear layers")
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    if uses_megatron(values):
        stated = values.text(f"{section}.lora_dtype")
        filling.fill("adapter.dtype", stated._replace(value=dtype_of(stated)) if dtype_of(stated) and stated else None,
                     builder.job.weights.dtype)  # fmt: skip
    else:
        builder.default("adapter.dtype", "float32", "FSDP wants one dtype; the workers choose float32")
    builder.derived("trainable", None, "the adapter alone", "method")


def _set_batches(filling: Filling, values: Sections) -> None:
    """Micro batches of rows, or of `train_mb_tokens` where rows are packed or batched by length."""
    builder = filling.builder
    plan = builder.job.parallelism
    length = values.integer("policy.max_total_sequence_length", least=1)
    if length:
        filling.put("sequence_length", length)
    else:
        builder.assumed("sequence_length", None, "no key bounds the length of a row")
    micro = values.integer("policy.train_micro_batch_size", least=1)
    packed = values.flag("policy.sequence_packing.enabled")
    dynamic = values.flag("policy.dynamic_batching.enabled")
    if packed:
        filling.put("packing", packed)
    else:
        builder.default("packing", False)
    builder.default("padded", False, "rows are padded to the longest of a batch")
    section = "sequence_packing" if packed and packed.value else "dynamic_batching"
    on = bool(packed and packed.value) or bool(dynamic and dynamic.value)
    tokens = values.integer(f"policy.{section}.train_mb_tokens", least=1) if on else None
    if tokens and length:
        rows = max(1, round(tokens.value / length.value))
        filling.put("micro_batch_size", tokens, rows, "rows of full length in train_mb_tokens")
    elif micro:
        filling.put("micro_batch_size", micro)
    else:
        builder.assumed("micro_batch_size", None, "no key says it")
    whole = values.integer("policy.train_global_batch_size", least=1)
    ranks = max(1, (builder.job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    each = micro.value if micro else 1
    if whole:
        steps = max(1, whole.value // (each * ranks))
        filling.put("gradient_accumulation_steps", whole, steps, f"global batch / ({each} x {ranks} ranks)")
    else:
        builder.default("gradient_accumulation_steps", 1)
