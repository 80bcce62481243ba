"""The trained policy of a NeMo RL config: model, sharding by DTensor or Megatron, optimizer, adapter, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.fsdp import FSDP, fsdp2
from ..core.backends.gpus import model_ranks
from ..core.backends.lora import TRAINABLE, lora
from ..core.backends.megatron import FIELDS_OF_ENDS, degrees, is_megatron, megatron_optimizer, offloaded_optimizer
from ..core.bindings.kinds import ANYTHING, FLAG, POSITIVE, TEXT, WORDS
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, only, within
from ..core.bindings.spelling import DTYPE

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

MEGATRON = "policy.megatron_cfg"
DTENSOR = "policy.dtensor_cfg"


def _on_dtensor(job: Job) -> bool:
    return not is_megatron(job)


def _dtype(reader: Reader) -> Any:
    return reader.value(DTYPE, "policy.precision", default="bfloat16")


def set_framework(reader: Reader) -> None:
    """Megatron where it is switched on; DTensor trains else."""
    if reader.value(FLAG, f"{MEGATRON}.enabled", default=False):
        reader.derived("framework", "megatron", "policy.megatron_cfg.enabled")


DEGREES = (
    *only(
        is_megatron,
        *degrees(MEGATRON),
        Key("parallelism.first_stage_layers", f"{MEGATRON}.{FIELDS_OF_ENDS[0]}", POSITIVE, None),
        Key("parallelism.last_stage_layers", f"{MEGATRON}.{FIELDS_OF_ENDS[1]}", POSITIVE, None),
        Key("parallelism.virtual_stages", f"{MEGATRON}.virtual_pipeline_model_parallel_size", POSITIVE, 1),
        Key("parallelism.sequence", f"{MEGATRON}.sequence_parallel", FLAG, default=False),
    ),
    *only(
        _on_dtensor,
        Key("parallelism.tensor", f"{DTENSOR}.tensor_parallel_size", POSITIVE, 1),
        Fixed("parallelism.pipeline", 1),
        Key("parallelism.context", f"{DTENSOR}.context_parallel_size", POSITIVE, 1),
        Key("parallelism.expert", f"{DTENSOR}.expert_parallel_size", POSITIVE, 1),
        Fixed("parallelism.expert_tensor", None),
        Fixed("parallelism.first_stage_layers", None),
        Fixed("parallelism.last_stage_layers", None),
        Fixed("parallelism.virtual_stages", 1),
        Key("parallelism.sequence", f"{DTENSOR}.sequence_parallel", FLAG, default=False),
    ),
)
"""Degrees of parallelism of the backend that trains."""


def _autocast(reader: Reader) -> Derived:
    half = _dtype(reader) if _dtype(reader) in ("bfloat16", "float16") else None
    return Derived(half, "the workers train under autocast in policy.precision")


def _set_optimizer(reader: Reader) -> None:
    """The class's name, fused where its arguments say so."""
    stated = reader.given(TEXT, "policy.optimizer.name")
    if stated:
        last = stated.value.rpartition(".")[2].lower()
        fused = reader.value(FLAG, "policy.optimizer.kwargs.fused", default=False)
        name = "fused_adam" if last == "fusedadam" else "adamw_torch_fused" if fused else last
        reader.set("optimizer.name", stated, name)


def _foreach(reader: Reader) -> Any:
    divided = reader.job.parallelism.tensor > 1
    return Derived(False, "its Automodel turns it off under tensor parallelism") if divided else None


def _checkpointing(value: Any, _job: Job) -> str:
    return {"true": "full", "selective": "selective"}.get(str(value).lower(), "none")


_WITH_DTENSOR = only(
    _on_dtensor,
    Fixed("attention", Default("sdpa", "what its workers ask for")),
    Fixed("versions.transformers", Default("5.12.1", "what its Automodel pins")),
    Fixed("precision.autocast", _autocast),
    Fixed("weights.dtype", Default("float32", "the workers load float32 master weights")),
    Fixed(f"{FSDP}upcast_trainable", Default(False, "weights are float32 already")),
    Fixed(f"{FSDP}sync_each_batch", Default(True, "gradients are reduced after every micro batch")),
    Fixed(f"{FSDP}state_dict_type", "SHARDED_STATE_DICT"),
    Fixed(f"{FSDP}mixed_precision.param_dtype", lambda reader: Derived(_dtype(reader), "policy.precision")),
    *fsdp2(offload=f"{DTENSOR}.cpu_offload"),
    Key("activation_checkpointing", f"{DTENSOR}.activation_checkpointing", ANYTHING, "none", _checkpointing),
    Fixed("reentrant", False),
    _set_optimizer,
    Fixed("optimizer.name", Assumed("adamw_torch", "no `policy.optimizer`")),
    Key("optimizer.foreach", "policy.optimizer.kwargs.foreach", FLAG, _foreach),
    Fixed("loss.kernel", "torch"),
    Fixed("loss.upcast", Derived("loss", "logits become float32 (output_dtype)")),
)
"""FSDP2 over weights that are always loaded in float32; they are gathered and multiplied in `precision`."""


def _set_selective(reader: Reader) -> None:
    """Selective recomputation, where checkpointing is on."""
    on = reader.value(FLAG, f"{MEGATRON}.activation_checkpointing", default=False)
    granularity = reader.given(TEXT, f"{MEGATRON}.recompute_granularity")
    if on and granularity and granularity.value == "selective":
        reader.set("activation_checkpointing", granularity)
        reader.set("checkpoint_policy", granularity, "core_attention")


_WITH_MEGATRON = only(
    is_megatron,
    Fixed("attention", Default("flash_attention_2", "what its workers ask for")),
    Fixed("weights.dtype", lambda reader: Derived(_dtype(reader), "policy.precision")),
    Key(
        "precision.gradients", f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32", FLAG, _dtype,
        lambda whole, job: "float32" if whole else job.weights.dtype,
    ),
    *megatron_optimizer(distributed=f"{MEGATRON}.optimizer.use_distributed_optimizer"),
    offloaded_optimizer(
        f"{MEGATRON}.optimizer.optimizer_cpu_offload", f"{MEGATRON}.optimizer.optimizer_offload_fraction", usual=1.0
    ),
    _set_selective,
    Key(
        "activation_checkpointing", f"{MEGATRON}.activation_checkpointing", FLAG, "none", {True: "full", False: "none"},
    ),
    Key(
        "optimizer.name", f"{MEGATRON}.optimizer.optimizer", TEXT, "fused_adam",
        lambda name, _: {"adam": "fused_adam"}.get(name, name), NEVER,
    ),
    Key("precision.compute", f"{MEGATRON}.fp8_cfg.enabled", FLAG, to={True: "float8-te"}),
    Key("loss.kernel", f"{MEGATRON}.use_fused_linear_logprobs", FLAG, "torch", {True: "chunked"}),
    Key(
        "loss.chunk", f"{MEGATRON}.fused_linear_logprobs_chunk_size", POSITIVE, 256,
        when=lambda job: job.loss.kernel == "chunked",
    ),
)  # fmt: skip
"""Megatron's model code and distributed optimizer: 16-bit weights, float32 master weights over the ranks."""


def _targets(names: list[str], _job: Job) -> Any:
    own = [name.removeprefix("*.").removeprefix("*") for name in names]
    return own if all(own) else "all-linear"


def _set_targets(reader: Reader) -> None:
    """The modules that are named; all linear layers where `match_all_linear` says so, and for Megatron."""
    if reader.job.method != "lora":
        return
    section = adapter_section(reader.job)
    every, named = reader.given(FLAG, f"{section}.match_all_linear"), reader.given(WORDS, f"{section}.target_modules")
    if named and not (every and every.value) and not is_megatron(reader.job):
        reader.set("adapter.targets", named, _targets(named.value, reader.job))
    elif every:
        reader.set("adapter.targets", every, "all-linear")
    else:
        reader.default("adapter.targets", "all-linear", "all linear layers")


def adapter_section(job: Job) -> str:
    """Where the backend that trains has its adapter."""
    return f"{MEGATRON}.peft" if is_megatron(job) else f"{DTENSOR}.lora_cfg"


_LORA = lora(rank="dim", alpha="alpha", dropout="dropout", r=8, scale=32)
_METHOD = Key("method", "enabled", FLAG, "full", {True: "lora"}, NEVER)

_ADAPTER = (
    *only(is_megatron, *within(f"{MEGATRON}.peft", _METHOD)),
    *only(_on_dtensor, *within(f"{DTENSOR}.lora_cfg", _METHOD)),
    *TRAINABLE,
    _set_targets,
    Key(
        "adapter.dtype", f"{MEGATRON}.peft.lora_dtype", DTYPE, lambda reader: reader.job.weights.dtype,
        when=lambda job: is_megatron(job) and job.method == "lora",
    ),
    Fixed(
        "adapter.dtype", Default("float32", "FSDP wants one dtype; the workers choose float32"),
        when=lambda job: not is_megatron(job) and job.method == "lora",
    ),
    *only(is_megatron, *within(f"{MEGATRON}.peft", *_LORA)),
    *only(_on_dtensor, *within(f"{DTENSOR}.lora_cfg", *_LORA)),
)  # fmt: skip


def _set_packed_rows(reader: Reader) -> None:
    """Micro batches of `train_mb_tokens` where rows are packed or batched by length."""
    packed = reader.value(FLAG, "policy.sequence_packing.enabled", default=False)
    section = "sequence_packing" if packed else "dynamic_batching"
    on = packed or reader.value(FLAG, "policy.dynamic_batching.enabled", default=False)
    tokens, length = reader.given(POSITIVE, f"policy.{section}.train_mb_tokens"), reader.job.sequence_length
    if on and tokens and length:
        rows = max(1, round(tokens.value / length))
        reader.set("micro_batch_size", tokens, rows, "rows of full length in train_mb_tokens")


def _set_steps(reader: Reader) -> None:
    whole, each = (reader.given(POSITIVE, f"policy.train_{name}_batch_size") for name in ("global", "micro"))
    rows, ranks = each.value if each else 1, model_ranks(reader.job)
    if whole:
        note = f"global batch / ({rows} x {ranks} ranks)"
        reader.set("gradient_accumulation_steps", whole, max(1, whole.value // (rows * ranks)), note)
    else:
        reader.default("gradient_accumulation_steps", 1)


POLICY = (
    Key("model", "policy.model_name", TEXT, Assumed(None, "no key names the model")),
    Fixed("weights.quantization", None),
    Fixed("liger_kernels", False),
    Fixed("compile", False),
    *_WITH_MEGATRON,
    *_WITH_DTENSOR,
    *_ADAPTER,
    Key(
        "sequence_length", "policy.max_total_sequence_length", POSITIVE,
        Assumed(None, "no key bounds the length of a row"),
    ),
    Key("packing", "policy.sequence_packing.enabled", FLAG, default=False, back=NEVER),
    Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
    _set_packed_rows,
    Key("micro_batch_size", "policy.train_micro_batch_size", POSITIVE, Assumed(None, "no key says it")),
    _set_steps,
)  # fmt: skip
"""All that says how the policy is trained, after `hardware` and the degrees."""


def checkpointing_keys(reading: Reading, value: str) -> Keys | None:
    """The switch, and Megatron's granularity."""
    if not is_megatron(reading.job):
        return {f"{DTENSOR}.activation_checkpointing": value == "full"} if value in ("full", "none") else None
    kind = {f"{MEGATRON}.recompute_granularity": value} if value in ("full", "selective") else {}
    wanted = {f"{MEGATRON}.activation_checkpointing": value != "none", **kind}
    return wanted if value in ("full", "none", "selective") else None


def batch_keys(reading: Reading, value: int) -> Keys | None:
    """Rows of a micro batch; where rows are packed, the tokens of one."""
    origin, length = reading.job.origins.get("micro_batch_size"), reading.job.sequence_length
    if origin is not None and origin.key and origin.key.endswith("train_mb_tokens"):
        written = reading.config.root.find(origin.key)
        if written is not None and not isinstance(written.value.value, str):
            return {origin.key: value * length} if length else None
    return {"policy.train_micro_batch_size": value}


def method_keys(reading: Reading, value: str) -> Keys | None:
    """The switch of the adapter, with a rank where there is none yet."""
    if value not in ("full", "lora"):
        return None
    section = adapter_section(reading.job)
    new = {f"{section}.dim": 16, f"{section}.alpha": 32} if value == "lora" != reading.job.method else {}
    return {f"{section}.enabled": value == "lora", **new}


def offload_keys(reading: Reading, value: str) -> Keys | None:
    """Megatron's optimizer in main memory."""
    if not is_megatron(reading.job) or value not in ("cpu", "none"):
        return None
    section, on = f"{MEGATRON}.optimizer", value == "cpu"
    return {f"{section}.optimizer_cpu_offload": on, f"{section}.optimizer_offload_fraction": float(on)}
