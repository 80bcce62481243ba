"""What Megatron does with weights, gradients and GPUs, whoever starts it: its own flags, or NeMo's keys for them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ...upstream import megatron
from ..core.native import NativeConfig
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.sharding import Parallelism
    from ..core.arguments import Arguments, Given

_DEGREES = {
    "parallelism.tensor": "tensor_model_parallel_size", "parallelism.pipeline": "pipeline_model_parallel_size",
    "parallelism.context": "context_parallel_size", "parallelism.expert": "expert_model_parallel_size",
    "parallelism.expert_tensor": "expert_tensor_parallel_size",
    "parallelism.first_stage_layers": "decoder_first_pipeline_num_layers",
    "parallelism.last_stage_layers": "decoder_last_pipeline_num_layers",
}  # fmt: skip
"""Job field -> the key of Megatron and NeMo."""

_MOMENTS = {
    "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8",
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "uint8": "float8",
}  # fmt: skip
"""What `exp_avg_dtype` may be, as a flag and as a dtype of torch; uint8 is the store of fp8 moments."""


CORE = megatron.NAME
"""The package whose release decides what the layers and the loss do."""


def set_core(config: NativeConfig, release: str, note: str) -> None:
    """The release of Megatron Core that a framework brings along, unless the run states another."""
    if not config.project.versions.get(CORE):
        config.builder.derived(f"versions.{CORE}", release, note)


def set_degrees(config: NativeConfig, keys: Arguments) -> int:
    """The parallel degrees; returns the GPUs of one model replica."""
    for path, key in _DEGREES.items():
        given = keys.integer(key, least=1)
        if given:
            config.put(path, given)
    sequence = keys.flag("sequence_parallel")
    if sequence and config.builder.job.parallelism.tensor > 1:
        config.put("parallelism.sequence", sequence)
    _set_ends(config, keys)
    plan = config.builder.job.parallelism
    return plan.tensor * plan.pipeline * plan.context


def _set_ends(config: NativeConfig, keys: Arguments) -> None:
    """The layers of the first and the last stage where the embedding and the loss count as a layer each.

    A flag for each (Megatron-LM transformer_block.py `get_num_layers_to_build`), or one expression for both
    (Megatron-DeepSpeed gpt_model.py, whose head is a second embedding). All stages are as long then; where they cannot
    be, Megatron-LM stops, and which stages DeepSpeed makes shorter (`partition_balanced`) is not followed.
    """
    plan, layers = config.builder.job.parallelism, keys.integer("num_layers", least=1)
    if layers is None or plan.pipeline <= 1:
        return
    method = keys.text("pp_partition_method")
    both = method if method and {*_COUNTED.findall(method.value.lower())} == {"transformer", "embedding"} else None
    given = {
        "parallelism.first_stage_layers": both or keys.flag("account_for_embedding_in_pipeline_split"),
        "parallelism.last_stage_layers": both or keys.flag("account_for_loss_in_pipeline_split"),
    }
    counted = {path: item for path, item in given.items() if item is not None and item.value}
    each, rest = divmod(layers.value + len(counted), plan.pipeline)
    if each > 1 and not rest:
        for path, item in counted.items():
            config.put(path, item, each - 1, "what is no layer counts as one")


_COUNTED = re.compile(r"transformer|embedding")
"""What `--pp-partition-method type:...` may count: a search in the names of the classes (deepspeed pipe/module.py)."""


def set_gpus(config: NativeConfig, replica: int, stated: Stated | None) -> int:
    """The GPUs: what is stated, else one model replica; returns the data parallel ranks."""
    builder = config.builder
    if stated is None and config.project.gpus is None:
        least = _least(builder.job.parallelism)
        note = "one model replica: the parallel degrees; the data parallel degree is up to the launch"
        set_hardware(builder, config.project, None, sharded=False)
        builder.assumed("hardware.gpus", least, note)
    else:
        set_hardware(builder, config.project, stated, sharded=False)
    gpus = builder.job.hardware.gpus or replica
    return max(1, gpus // replica)


def _least(plan: Parallelism) -> int:
    """The fewest GPUs on which both the dense layers and the experts have whole groups (mcore parallel_state.py).

    Experts are split over `expert_tensor_parallel_size` ranks, those of the dense layers where it is not stated.
    """
    dense = plan.tensor * plan.context
    experts = plan.expert * (plan.expert_tensor or plan.tensor) if plan.expert > 1 else 1
    return plan.pipeline * math.lcm(dense, experts)


def set_sixteen_bits(config: NativeConfig, given: Given, dtype: str, gradients: str) -> None:
    """16-bit weights, gradients accumulated in `gradients`, fp32 main parameters in the optimizer."""
    config.put("weights.dtype", given, dtype)
    builder = config.builder
    builder.derived("precision.master_weights", True, "Megatron keeps fp32 main parameters", "weights.dtype")
    builder.derived("precision.gradients", gradients, "the dtype of Megatron's gradient buffer", "weights.dtype")
    builder.derived("precision.autocast", None, "Megatron casts its weights instead", "weights.dtype")


def set_states(config: NativeConfig, keys: Arguments) -> None:
    """The precision-aware optimizer keeps its two moments in the dtypes that are asked for; without it in fp32."""
    if not keys.is_on("use_precision_aware_optimizer"):
        return
    first, second = (keys.text(name) for name in ("exp_avg_dtype", "exp_avg_sq_dtype"))
    dtypes = {_MOMENTS.get(given.value.removeprefix("torch.")) if given else "float32" for given in (first, second)}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if first and dtype:
        config.put("optimizer.state_dtype", first, dtype)


def set_accumulation(config: NativeConfig, given: Given | None, ranks: int, *, certain: bool = True) -> None:
    """Micro batches of a step: the global batch over the data parallel ranks and micro batches.

    `certain` is whether the file states the degrees, so that a global batch that does not divide is a contradiction.
    """
    micro = config.builder.job.micro_batch_size or 1
    if given is None:
        config.builder.default("gradient_accumulation_steps", 1, "global batch: one micro batch of every rank")
        return
    steps, rest = divmod(int(given.value), micro * ranks)
    config.put("gradient_accumulation_steps", given, max(1, steps), f"over {ranks} data parallel ranks")
    if certain and (rest or not steps) and config.builder.job.origins["hardware.gpus"].kind != "assumed":
        other = f"micro batch {micro} x {ranks} data parallel ranks do not divide it"
        config.contradiction(given, other, "Megatron stops: the global batch must be whole micro batches of all ranks")


def set_chunks(config: NativeConfig, given: Given | None, chunks: int) -> None:
    """The model chunks of a rank under the interleaved schedule."""
    if given is not None and chunks > 1 and config.builder.job.parallelism.pipeline > 1:
        config.put("parallelism.virtual_stages", given, chunks)


def set_recomputation(config: NativeConfig, keys: Arguments, prefix: str) -> None:
    """`full` granularity, or `selective`, which makes the inside of attention again."""
    given = keys.text(f"{prefix}granularity")
    if given and given.value in ("full", "selective"):
        config.put("activation_checkpointing", given, given.value)
        note = "Megatron's selective part"
        config.builder.derived("checkpoint_policy", "core_attention", note, "activation_checkpointing")
    else:
        config.builder.default("activation_checkpointing", "none")
    note_modules(config, keys)


def note_modules(config: NativeConfig, keys: Arguments) -> None:
    """Modules besides attention's inside that are made again, and modules whose activations wait in main memory.

    How much each saves is not derived: the interval reaches down to a run that makes whole layers again, and whose
    inputs wait in main memory, too.
    """
    named = keys.raw("recompute_modules")
    selective = config.builder.job.activation_checkpointing == "selective"
    listed = str(named.value) if named is not None and named.value and selective else ""
    modules = set(re.findall(r"[a-z_]+", listed)) - {"core_attn"}
    if modules or keys.is_on("fine_grained_activation_offloading"):
        config.builder.job.unstated.append("checkpoint_policy")


def set_deferral(config: NativeConfig, keys: Arguments) -> None:
    """`defer_embedding_wgrad_compute` of a pipeline, for all micro batches of a step or `wgrad_deferral_limit`."""
    given, limit = keys.flag("defer_embedding_wgrad_compute"), keys.integer("wgrad_deferral_limit", least=1)
    job = config.builder.job
    if given and given.value and job.parallelism.pipeline > 1:
        steps = job.gradient_accumulation_steps
        config.put("loss.deferred", given, min(steps, limit.value) if limit else steps, "micro batches of a step")


def set_fusion(config: NativeConfig, keys: Arguments, *, usual: bool, form: str = "native") -> None:
    """`cross_entropy_loss_fusion`: compiled in its `native` form, a kernel of Transformer Engine's in its `te` one."""
    fusion, stated = keys.flag("cross_entropy_loss_fusion"), keys.text("cross_entropy_fusion_impl")
    on = fusion.value if fusion else usual
    if on and (stated.value if stated else form) == "te":
        note = "Transformer Engine's kernel"
        if stated:
            config.put("loss.kernel", stated, "te_cross_entropy", note)
        else:
            config.builder.default("loss.kernel", "te_cross_entropy", note)
        config.builder.derived("loss.compiled", False, note, "loss.kernel")
    elif fusion:
        config.put("loss.compiled", fusion)
    else:
        config.builder.default("loss.compiled", usual, f"cross_entropy_loss_fusion {str(usual).lower()}")
