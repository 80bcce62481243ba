"""The engine that trains an AReaL model: FSDP2, Megatron or Archon; its optimizer, adapter and checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.fsdp import FSDP, fsdp2
from ..core.backends.lora import lora
from ..core.backends.megatron import is_megatron, megatron_optimizer
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORD, WORDS, Unsaid
from ..core.bindings.rows import Default, Fixed, Key, only
from ..core.bindings.spelling import DTYPE
from ..megatron.model import MODULES
from .areal_allocation import plan_of

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_OPTIMIZERS = {"adam": "adamw_torch_fused", "adam_bf16": "adamw_torch_fused"}

_ARCHON = (
    Key(f"{FSDP}offload", "actor.archon.offload_params", FLAG, default=False),
    Key("compile", "actor.archon.enable_compile", FLAG, default=False),
)
"""What Archon has keys of its own for."""


def _on_fsdp(job: Job) -> bool:
    return not is_megatron(job)


def _set_archon(reader: Reader) -> None:
    if plan_of(reader).backend == "archon":
        reader.bind(_ARCHON)


def _set_checkpointing(reader: Reader) -> None:
    """Which kind, where it is on: every layer, or the operations that Megatron and Archon choose."""
    on, backend = reader.given(FLAG, "actor.gradient_checkpointing"), plan_of(reader).backend
    if on is None or not on.value:
        return
    kind = {"megatron": "megatron.recompute_granularity", "archon": "archon.ac_mode"}.get(backend)
    named = reader.given(TEXT, f"actor.{kind}") if kind else None
    mode = named.value if named else "selective" if backend == "archon" else "full"
    reader.set("activation_checkpointing", named or on, mode if mode in ("full", "none") else "selective")
    if mode == "selective" and backend == "megatron":
        reader.set("checkpoint_policy", named or on, "core_attention")


def _optimizer(name: str, job: Job) -> str:
    return "fused_adam" if is_megatron(job) and name != "sgd" else _OPTIMIZERS.get(name, name)


def _targets(names: list[str], _job: Job) -> Any:
    """PEFT's names of the modules that Megatron calls otherwise."""
    return "all-linear" if names == ["all-linear"] else [own for name in names for own in MODULES.get(name, (name,))]


def _narrow(whole: bool, job: Job) -> Any:
    return Unsaid.OTHER if whole else job.weights.dtype


ENGINE = (
    Key("weights.dtype", "actor.dtype", DTYPE, "bfloat16"),
    Fixed("weights.quantization", None),
    Fixed("precision.autocast", None),
    _set_archon,
    Fixed("compile", False),
    Fixed("liger_kernels", False),
    Fixed("loss.kernel", "torch"),
    *only(
        is_megatron,
        Fixed("attention", Default("flash_attention_2", "TransformerEngine's")),
        Key(
            "precision.gradients", "actor.megatron.ddp.grad_reduce_in_fp32", FLAG,
            Default("float32", "grad_reduce_in_fp32"), _narrow,
        ),
        *megatron_optimizer(distributed="actor.megatron.ddp.use_distributed_optimizer"),
        Key("parallelism.virtual_stages", "actor.megatron.virtual_pipeline_parallel_size", POSITIVE, 1),
    ),
    *only(
        _on_fsdp,
        Fixed(f"{FSDP}reshard_after_forward", Default(True, "parallelize_model")),
        Fixed(f"{FSDP}upcast_trainable", Default(False, "weights keep `dtype`")),
        Fixed(f"{FSDP}sync_each_batch", Default(True, "gradients are reduced after every micro batch")),
        Fixed(f"{FSDP}mixed_precision.param_dtype", lambda reader: reader.job.weights.dtype),
        *fsdp2(offload="actor.fsdp.offload_params", reduce_dtype="actor.grad_reduce_dtype", note="apply_fsdp2"),
        Key("optimizer.states_offloaded_between_steps", "actor.fsdp.per_layer_optim_step", FLAG, default=False),
    ),
    Key("attention", "actor.attn_impl", TEXT, "flash_attention_2"),
    Fixed("reentrant", False),
    _set_checkpointing,
    Key("activation_checkpointing", "actor.gradient_checkpointing", FLAG, "none", {True: "full", False: "none"}),
    Key(
        "optimizer.name", "actor.optimizer.type", WORD, lambda reader: _optimizer("adam", reader.job), _optimizer,
    ),
    Key("optimizer.state_dtype", "actor.optimizer.type", WORD, to={"adam_bf16": "bfloat16"}),
    Key("method", "actor.use_lora", FLAG, "full", {True: "lora", False: "full"}),
    Key(
        "adapter.targets", "actor.target_modules", WORDS, Default(None, "what PEFT targets in this architecture"),
        _targets, when=lambda job: job.method == "lora",
    ),
    *lora(rank="actor.lora_rank", alpha="actor.lora_alpha", r=32, scale=16.0),
)  # fmt: skip
"""Weights in `dtype`, and what the engine keeps beside them."""


def checkpointing_keys(reading: Reading, value: str) -> Keys | None:
    """The switch, and Megatron's kind of it."""
    if value in ("full", "selective") and is_megatron(reading.job):
        return {"actor.gradient_checkpointing": True, "actor.megatron.recompute_granularity": value}
    return {"actor.gradient_checkpointing": value == "full"} if value in ("full", "none") else None


def method_keys(reading: Reading, value: str) -> Keys | None:
    """The switch of LoRA, and an adapter where there is none; not with Megatron."""
    if value not in ("full", "lora") or is_megatron(reading.job):
        return None
    new = value == "lora" != reading.job.method
    return {"actor.use_lora": value == "lora"} | (
        {"actor.lora_rank": 32, "actor.target_modules": ["all-linear"]} if new else {}
    )
