"""The actor of a verl config: its GPUs, and the model that is trained on them, with FSDP or Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import is_release
from ...upstream.rl import verl
from ..core.backends.fsdp import FSDP, fsdp2
from ..core.backends.gpus import model_ranks
from ..core.backends.lora import TRAINABLE, lora
from ..core.backends.megatron import degrees, is_megatron, megatron_optimizer, offloaded_optimizer, recompute
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORD
from ..core.bindings.rows import NEVER, Assumed, Default, Fixed, Key, Written, only, within
from ..core.bindings.spelling import DTYPE, dtype
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
MEGATRON = f"{ACTOR}.megatron"

WEIGHTS = dtype(written={"bfloat16": "bf16", "float32": "fp32"})
"""The dtype of an FSDP engine's weights."""

_TOKENS = f"{ACTOR}.ppo_max_token_len_per_gpu"
_RECOMPUTE = f"{MEGATRON}.override_transformer_config.recompute_granularity"


def _on_fsdp(job: Job) -> bool:
    return not is_megatron(job)


def _set_engine(reader: Reader) -> None:
    if reader.value(TEXT, f"{ACTOR}.strategy") == "megatron":
        reader.derived("framework", "megatron", "actor.strategy megatron")


def _set_gpus(reader: Reader) -> None:
    """The GPUs that the file states, else those of verl's own config."""
    each, nodes = reader.given(POSITIVE, "trainer.n_gpus_per_node"), reader.given(POSITIVE, "trainer.nnodes")
    count = nodes.value if nodes else 1
    stated: Stated | None = None
    if each and (reader.is_stated(each) or reader.is_stated(nodes)):
        given = each if reader.is_stated(each) or nodes is None else nodes
        stated = Stated(each.value * count, given.entry, given.key, f"{each.value} GPUs x {count} nodes")
    set_hardware(reader, reader.project, stated, sharded=each is None)
    if stated is None and reader.project.gpus is None and each:
        reader.default("hardware.gpus", each.value * count, f"trainer.n_gpus_per_node of {reader.upstream}")
    if nodes and reader.project.nodes is None:
        reader.set("hardware.nodes", nodes)


SIZES = (
    _set_engine,
    _set_gpus,
    *only(
        is_megatron,
        *degrees(MEGATRON),
        Key("parallelism.virtual_stages", f"{MEGATRON}.virtual_pipeline_model_parallel_size", POSITIVE, 1),
        Key("parallelism.sequence", f"{MEGATRON}.sequence_parallel", FLAG, default=True),
    ),
    Fixed("parallelism.tensor", 1),
    Fixed("parallelism.pipeline", 1),
    Fixed("parallelism.expert", 1),
    Key(
        "parallelism.context", f"{ACTOR}.ulysses_sequence_parallel_size", POSITIVE, 1, when=_on_fsdp,
    ),
    Fixed("parallelism.sequence", False),
)  # fmt: skip
"""`hardware`, and the degrees of parallelism of the actor."""


def _set_model(reader: Reader) -> None:
    model = reader.given(TEXT, f"{MODEL}.path")
    if model and reader.is_stated(model):
        reader.set("model", model)


def _compute(reader: Reader) -> Any:
    return reader.value(DTYPE, f"{ACTOR}.fsdp_config.dtype", default="bfloat16")


def _autocast(reader: Reader) -> Default:
    half = _compute(reader)
    return Default(half if half in ("bfloat16", "float16") else None, "the engine's autocast")


def _set_sync(reader: Reader) -> None:
    """Gradients are reduced once a step where the option says so, and in one release; it may run if none is stated."""
    stated = reader.project.versions.get(verl.NAME)
    defers = reader.given(FLAG, f"{ACTOR}.fsdp_config.use_no_sync_for_gradient_accumulation")
    if defers:
        reader.set(f"{FSDP}sync_each_batch", defers, not defers.value)
        return
    if is_release(stated):
        note = f"verl {stated}, which {'defers' if verl.DEFERS_GRADIENTS.at(stated) else 'reduces every micro batch'}"
        reader.derived(f"{FSDP}sync_each_batch", not verl.DEFERS_GRADIENTS.at(stated), note)
        return
    note = "verl reduces every micro batch; 0.9.0 and its source of July and August 2026 defer (#7095)"
    reader.default(f"{FSDP}sync_each_batch", True, note)
    reader.job.unstated.append(f"{FSDP}sync_each_batch")


def _set_offloaded_checkpoints(reader: Reader) -> None:
    offload = reader.given(FLAG, f"{MODEL}.enable_activation_offload")
    if offload and offload.value and reader.value(FLAG, f"{MODEL}.enable_gradient_checkpointing", default=True):
        reader.set("activation_checkpointing", offload, "offload")


_WITH_FSDP = only(
    _on_fsdp,
    *within(
        f"{ACTOR}.fsdp_config",
        Key("weights.dtype", "model_dtype", WEIGHTS, "float32", other="float32"),
        _set_sync,
        Fixed(f"{FSDP}upcast_trainable", Default(False, "weights keep model_dtype")),
        Fixed(f"{FSDP}state_dict_type", "SHARDED_STATE_DICT"),
        Fixed("precision.autocast", _autocast),
        Fixed(f"{FSDP}mixed_precision.param_dtype", _compute),
        Key(f"{FSDP}forward_prefetch", "forward_prefetch", FLAG, default=False),
        Key(f"{FSDP}use_orig_params", "use_orig_params", FLAG, default=False),
    ),
    Key(f"{FSDP}version", f"{ACTOR}.strategy", TEXT, 1, lambda word, _: 2 if word == "fsdp2" else 1, NEVER),
    *within(
        f"{ACTOR}.fsdp_config", *fsdp2(reshard="reshard_after_forward", size="fsdp_size", offload="offload_policy")
    ),
    _set_offloaded_checkpoints,
    Key(
        "activation_checkpointing", f"{MODEL}.enable_gradient_checkpointing", FLAG, "full",
        {True: "full", False: "none"},
    ),
    Fixed("reentrant", False),
    Key("optimizer.name", f"{ACTOR}.optim.optimizer", WORD, "adamw", back=NEVER),
)  # fmt: skip
"""FSDP over weights in `model_dtype` (float32), gathered and multiplied in bfloat16, reduced in float32."""

_WITH_MEGATRON = only(
    is_megatron,
    Fixed("weights.dtype", lambda reader: reader.value(DTYPE, f"{MEGATRON}.dtype", default="bfloat16")),
    Fixed("precision.gradients", Default("float32", "verl reduces gradients in float32")),
    *megatron_optimizer(distributed=f"{MEGATRON}.use_distributed_optimizer"),
    offloaded_optimizer(
        f"{ACTOR}.optim.override_optimizer_config.optimizer_cpu_offload",
        f"{ACTOR}.optim.override_optimizer_config.optimizer_offload_fraction",
        usual=1.0,
    ),
    Key("checkpoint_policy", _RECOMPUTE, TEXT, to={"selective": "core_attention"}, back=NEVER),
    *recompute(_RECOMPUTE, default="none"),
    Fixed("optimizer.name", Default("fused_adam", "Megatron's FusedAdam")),
)  # fmt: skip
"""Megatron's model code; bfloat16 weights, float32 master weights and gradients over the ranks."""


def _lora(_rank: int, _job: Job) -> str:
    return "lora"


_FULL = Default("full", "lora_rank 0")

_ADAPTER = (
    Key("method", f"{MODEL}.lora.rank", POSITIVE, _FULL, _lora, NEVER, is_megatron),
    Key("method", f"{MODEL}.lora_rank", POSITIVE, _FULL, _lora, NEVER),
    *TRAINABLE,
    Key("adapter.r", f"{MODEL}.lora.rank", POSITIVE, when=lambda job: is_megatron(job) and job.method == "lora"),
    *within(MODEL, *lora(rank="lora_rank", alpha="lora_alpha", targets="target_modules")),
)


def _length(job: Job) -> int:
    return (job.rl.prompt_length or 0) + (job.rl.completion_length or 0)


def _set_packed_rows(reader: Reader) -> None:
    job, tokens = reader.job, reader.given(POSITIVE, _TOKENS)
    if tokens and reader.value(FLAG, f"{ACTOR}.use_dynamic_bsz", default=False):
        rows = max(1, round(tokens.value * job.parallelism.context / _length(job)))
        reader.set("micro_batch_size", tokens, rows, "rows of full length in the tokens of a GPU")


def _set_steps(reader: Reader) -> None:
    """A mini batch counts prompts, each with its samples."""
    job, mini = reader.job, reader.given(POSITIVE, f"{ACTOR}.ppo_mini_batch_size")
    ranks, rows = model_ranks(job), (mini.value if mini else 256) * (job.rl.generations or 1)
    steps = max(1, rows // (ranks * (job.micro_batch_size or 1)))
    reader.put(
        "gradient_accumulation_steps", Written(steps, f"{rows} rows over {ranks} ranks") if mini else steps, mini
    )


def _share(rows: int, job: Job) -> Written:
    return Written(max(1, rows // model_ranks(job)), f"over {model_ranks(job)} ranks")


_BATCHES = (
    Key("rl.prompt_length", "data.max_prompt_length", POSITIVE, 512),
    Key("rl.completion_length", "data.max_response_length", POSITIVE, 512),
    Key("rl.generations", "actor_rollout_ref.rollout.n", POSITIVE, 1),
    Key(
        "sequence_length", "data.max_response_length", POSITIVE, lambda reader: _length(reader.job),
        lambda _, job: _length(job), NEVER, note="prompt and response",
    ),
    _set_packed_rows,
    Key("micro_batch_size", f"{ACTOR}.ppo_micro_batch_size_per_gpu", POSITIVE),
    Key(
        "micro_batch_size", f"{ACTOR}.ppo_micro_batch_size", POSITIVE,
        Assumed(None, "neither ppo_micro_batch_size_per_gpu nor use_dynamic_bsz"), _share, NEVER,
    ),
    Key("packing", f"{MODEL}.use_remove_padding", FLAG, False, {True: True}),
    Fixed(
        "padded", lambda reader: Default(not reader.job.packing, "rows have prompt and response at full length")
    ),
    _set_steps,
)  # fmt: skip
"""Rows of prompt and response; `use_dynamic_bsz` packs up to `ppo_max_token_len_per_gpu` tokens instead."""

TRAINING = (
    _set_model,
    Fixed("model", Assumed(None, "no key names the model")),
    Fixed("weights.quantization", None),
    Fixed("attention", Default("flash_attention_2", "verl asks for it")),
    Key("liger_kernels", f"{MODEL}.use_liger", FLAG, default=False),
    Fixed("compile", False),
    *_WITH_FSDP,
    *_WITH_MEGATRON,
    Key(
        "loss.kernel", f"{MODEL}.use_fused_kernels", FLAG, "torch", {True: "chunked"},
        {"torch": False, "liger": True, "chunked": True},
    ),
    Fixed(
        "loss.chunk", Default(512, "tokens a chunk (utils/experimental/torch_functional.py)"),
        when=lambda job: job.loss.kernel == "chunked",
    ),
    *_ADAPTER,
    *_BATCHES,
)  # fmt: skip
"""Model, sharding, optimizer, adapter, activations and batches."""


def checkpointing_keys(reading: Reading, value: str) -> Keys | None:
    """Megatron's granularity; FSDP's switch and the one that moves checkpoints to main memory."""
    if is_megatron(reading.job):
        return {_RECOMPUTE: None if value == "none" else value} if value in ("full", "selective", "none") else None
    offload = {f"{MODEL}.enable_activation_offload": True} if value == "offload" else {}
    wanted = {f"{MODEL}.enable_gradient_checkpointing": value != "none", **offload}
    return wanted if value in ("full", "none", "offload") else None


def batch_keys(reading: Reading, value: int) -> Keys:
    """Rows of a micro batch, or its tokens where it has a bound of them."""
    origin, length = reading.job.origins.get("micro_batch_size"), reading.job.sequence_length or 0
    if origin is not None and "max_token_len" in (origin.key or ""):
        return {_TOKENS: value * length // reading.job.parallelism.context}
    return {f"{ACTOR}.ppo_micro_batch_size_per_gpu": value}


def method_keys(reading: Reading, value: str) -> Keys | None:
    """LoRA by its rank; not with Megatron."""
    if is_megatron(reading.job) or value not in ("full", "lora"):
        return None
    if value == "full":
        return {f"{MODEL}.lora_rank": 0}
    return {} if reading.job.method == "lora" else {f"{MODEL}.lora_rank": 32, f"{MODEL}.lora_alpha": 32}


def sharding_keys(reading: Reading, value: str) -> Keys | None:
    """All ranks for one group."""
    asked = value == "full_shard" and not is_megatron(reading.job)
    return {f"{ACTOR}.fsdp_config.fsdp_size": -1} if asked else None
