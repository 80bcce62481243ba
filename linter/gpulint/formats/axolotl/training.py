"""Batches, checkpointing, kernels, optimizer and evaluation of an axolotl run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..core.coercion import as_boolean
from ..hf_trainer import image_inputs

if TYPE_CHECKING:
    from ..core.arguments import Given
    from .config import AxolotlConfig

ATTENTION = {
    "flash_attention_2": "flash_attention_2", "flash_attention_3": "flash_attention_3",
    "flash_attention_4": "flash_attention_3", "flash_attention_torch": "flash_attention_2",
    "flex_attention": "flex", "xformers": "xformers", "sage": "sage", "sdpa": "sdpa", "eager": "eager", "fp8": "sdpa",
    "kernels-community/flash-attn2": "flash_attention_2", "kernels-community/flash-attn3": "flash_attention_3",
}  # fmt: skip
"""`attn_implementation` -> the Job's attention. Flash Attention 4 saves what Flash Attention 3 saves."""

LEGACY_ATTENTION = (
    ("xformers_attention", "xformers"),
    ("sage_attention", "sage"),
    ("flex_attention", "flex"),
    ("flash_attention", "flash_attention_2"),
    ("sdp_attention", "sdpa"),
    ("eager_attention", "eager"),
)
"""Old switches in the order in which `normalize_attn_implementation` lets them win."""

LIGER = {
    "liger_rope": "rope", "liger_rms_norm": "norm", "liger_rms_norm_gated": "norm", "liger_layer_norm": "norm",
    "liger_glu_activation": "mlp", "liger_swiglu": "mlp",
}  # fmt: skip
"""Keys of the Liger plugin by what they replace in a layer."""

CHUNKS = 8
"""`CEWithChunkedOutputLoss` takes the loss in this many pieces of the sequence unless told otherwise."""

PACKING = frozenset({"flash_attention_2", "flash_attention_3", "flex", "xformers", "sage", "sdpa", "eager"})
"""Attentions that keep packed samples apart without a mask from the collator (`attn_decontaminates_packing`)."""


def set_batch(config: AxolotlConfig) -> None:
    """Micro batch, accumulation, sequence length, packing, padding.

    `batch_size` without accumulation means accumulation = batch_size // micro_batch_size (`normalize_config`).
    Unpacked rows are padded: to `sequence_len` with `pad_to_sequence_len`, else to the longest row of the batch.
    """
    keys, builder = config.keys, config.builder
    micro = keys.integer("micro_batch_size", least=1)
    if micro:
        config.put("micro_batch_size", micro, micro.value)
    else:
        config.default("micro_batch_size", "micro_batch_size")
    steps, whole = keys.integer("gradient_accumulation_steps", least=1), keys.integer("batch_size", least=1)
    if steps:
        config.put("gradient_accumulation_steps", steps, steps.value)
    elif whole:
        accumulation = max(1, whole.value // (builder.job.micro_batch_size or 1))
        config.put("gradient_accumulation_steps", whole, accumulation, "batch_size over micro_batch_size")
    else:
        config.default("gradient_accumulation_steps", "gradient_accumulation_steps")
    length = keys.integer("sequence_len", least=1)
    if length:
        config.put("sequence_length", length, length.value)
    else:
        config.default("sequence_length", "sequence_len")
    packing = keys.flag("sample_packing")
    if packing:
        config.put("packing", packing, packing.value)
    else:
        builder.default("packing", False)
    _padding(config)
    image_inputs.axolotl(config)


def _padding(config: AxolotlConfig) -> None:
    builder, job = config.builder, config.builder.job
    pad = config.keys.flag("pad_to_sequence_len")
    if job.packing:
        builder.derived("padded", False, "packed rows are full and keep samples apart without a mask", "packing")
    elif pad and pad.value:
        config.put("padded", pad, True)
    elif (job.micro_batch_size or 1) > 1:
        builder.derived("padded", True, "rows of a batch are padded to its longest", "micro_batch_size")
    else:
        builder.derived("padded", False, "one row a batch", "micro_batch_size")


def set_checkpointing(config: AxolotlConfig) -> None:
    """`activation_checkpointing` and `reentrant` (`_configure_gradient_checkpointing`, `normalize_config`).

    Without `gradient_checkpointing_kwargs` supervised runs checkpoint reentrantly, others not.
    """
    keys, builder = config.keys, config.builder
    given = None if keys.blank("gradient_checkpointing") else keys.raw("gradient_checkpointing")
    offload = keys.raw("activation_offloading")
    selective = keys.raw("selective_checkpointing")
    written = given.value if given is not None else None
    on = written in ("offload", "offload_disk") or bool(as_boolean(written))
    if given is None:
        config.builder.default("activation_checkpointing", "none")
    elif written in ("offload", "offload_disk"):
        config.put("activation_checkpointing", given, "offload", "old spelling of activation_offloading")
    elif on and offload is not None and offload.value not in (None, False):
        config.put("activation_checkpointing", offload, "offload")
    elif on and selective is not None and selective.value not in (None, False):
        config.put("activation_checkpointing", selective, "selective")
    else:
        config.put("activation_checkpointing", given, "full" if on else "none")
    if builder.job.activation_checkpointing == "selective":
        note = f"{builder.upstream} keeps the outputs of attention kernels"
        builder.derived("checkpoint_policy", "attention", note, "activation_checkpointing")
    kwargs = keys.mapping("gradient_checkpointing_kwargs")
    stated = kwargs.flag("use_reentrant")
    if stated:
        config.put("reentrant", stated, stated.value)
    elif not any(keys.raw(key) for key in ("gradient_checkpointing_kwargs", "rl", "unfrozen_parameters")):
        builder.default("reentrant", True, f"{builder.upstream} sets it for supervised runs")
    else:
        builder.default("reentrant", False)


def set_attention(config: AxolotlConfig) -> None:
    """`attention`: `attn_implementation`, else the old switches, else what Transformers takes (SDPA)."""
    keys = config.keys
    given = keys.text("attn_implementation")
    if given:
        name = given.value.split("@", 1)[0].split(":", 1)[0].strip()
        config.put("attention", given, ATTENTION.get(name, name))
        return
    hybrid = keys.flag("gemma4_hybrid_attn_impl")
    for key, name in LEGACY_ATTENTION:
        flag = keys.flag(key)
        if flag and flag.value:
            config.put("attention", flag, name)
            return
    if hybrid and hybrid.value:
        config.put("attention", hybrid, "flash_attention_2")
    else:
        config.builder.default("attention", "sdpa", "default of Transformers 5.16.1, which axolotl leaves it to")


def set_loss(config: AxolotlConfig) -> None:
    """`loss.kernel` and `liger_kernels`; a kernel whose plugin is not loaded does nothing.

    The cut cross entropy plugin is on unless switched off. `chunked_cross_entropy` makes the whole logits and takes
    the loss in `chunked_cross_entropy_num_chunks` pieces.
    """
    keys, builder, job = config.keys, config.builder, config.builder.job
    cut, fused = keys.flag("cut_cross_entropy"), keys.flag("liger_fused_linear_cross_entropy")
    chunked = keys.flag("chunked_cross_entropy")
    preference = keys.flag("dpo_use_liger_kernel") or keys.mapping("trl").flag("use_liger_loss")
    liger = config.has_plugin("LigerPlugin")
    builder.default("loss.kernel", "torch")
    builder.default("loss.logits", "whole", f"{builder.upstream} takes whole logits apart")
    if chunked and chunked.value:
        builder.default("loss.compiled", True)
    if preference and preference.value and keys.raw("rl"):
        config.put("loss.kernel", preference, "liger")
    elif config.has_plugin("CutCrossEntropyPlugin") and not (cut and not cut.value):
        plugins = keys.raw("plugins")
        given = cut or plugins
        assert given is not None
        config.put("loss.kernel", given, "cut_cross_entropy", "" if cut else "the plugin's default")
    elif fused and fused.value and liger:
        config.put("loss.kernel", fused, "liger")
    elif liger and (plain := keys.flag("liger_cross_entropy")) and plain.value:
        config.put("loss.kernel", plain, "liger_cross_entropy")
    elif chunked and chunked.value:
        config.put("loss.kernel", chunked, "chunked")
        number = keys.integer("chunked_cross_entropy_num_chunks", least=1)
        pieces = number.value if number else CHUNKS
        tokens = math.ceil((job.sequence_length or 0) / pieces) * (job.micro_batch_size or 1)
        if number:
            config.put("loss.chunk", number, tokens, f"{pieces} pieces of the sequence")
        else:
            builder.default("loss.chunk", tokens, f"{pieces} pieces of the sequence, default of {builder.upstream}")
    kernels = [(part, flag) for key, part in LIGER.items() if (flag := keys.flag(key)) and flag.value]
    if kernels and liger:
        config.put("liger_kernels", kernels[0][1], True)
        config.put("liger_parts", kernels[0][1], sorted({part for part, _ in kernels}))
    else:
        builder.default("liger_kernels", False)
    compiled = keys.raw("torch_compile")
    if compiled is not None and compiled.value is not None:
        config.put("compile", compiled, compiled.value == "auto" or bool(as_boolean(compiled.value)))
    else:
        builder.default("compile", False)


def set_optimizer(config: AxolotlConfig) -> None:
    """`optimizer`: the Transformers spelling, or one of axolotl's own names.

    The Transformers Trainer keeps float32 states for embeddings under 8-bit bitsandbytes optimizers; so does axolotl.
    """
    keys, builder = config.keys, config.builder
    given = keys.text("optimizer")
    if given:
        config.put("optimizer.name", given, given.value.strip())
    else:
        config.default("optimizer.name", "optimizer")
    rank = keys.integer("qgalore_rank", least=1)
    name = builder.job.optimizer.name
    if name == "q_galore_adamw8bit":
        if rank:
            config.put("optimizer.rank", rank, rank.value)
        else:
            config.default("optimizer.rank", "qgalore_rank")
    builder.default("optimizer.embeddings_32bit", True, "the Trainer's override for nn.Embedding")


def set_evaluation(config: AxolotlConfig) -> None:
    """`evaluation.micro_batch_size` where an evaluation will run (`_configure_save_and_eval_strategy`).

    There must be data (`val_set_size`, `test_datasets`) and a schedule (`eval_steps`, `evals_per_epoch` or
    `eval_strategy`); predictions move to the host after `gradient_accumulation_steps` batches. The micro batch is the
    training one unless `eval_batch_size` says otherwise.
    """
    keys, builder = config.keys, config.builder
    share, tests = keys.number("val_set_size"), keys.raw("test_datasets")
    data = share if share and share.value else tests if tests and tests.value else None
    schedule = next(
        (found for key in ("eval_steps", "evals_per_epoch") if (found := keys.number(key)) and found.value), None
    ) or keys.text("eval_strategy", "evaluation_strategy")
    off = schedule is not None and schedule.value == "no"
    if data is None or schedule is None or off:
        reason = "no evaluation data" if data is None else "nothing schedules an evaluation"
        builder.derived("evaluation.micro_batch_size", None, reason)
        return
    _evaluation_batch(config, data)
    builder.derived(
        "evaluation.accumulation_steps",
        builder.job.gradient_accumulation_steps,
        f"{builder.upstream} takes gradient_accumulation_steps",
        "gradient_accumulation_steps",
    )
    builder.default("evaluation.keeps_logits", False, "no metrics: only the loss is kept")
    if builder.job.loss.kernel == "liger" and builder.job.objective in ("sft", "pretrain"):
        note = "Liger's models make the logits outside of training, and axolotl does not tell the Trainer of Liger"
        builder.derived("evaluation.unfused", True, note, "loss.kernel")


def _evaluation_batch(config: AxolotlConfig, data: Given) -> None:
    batch = config.keys.integer("eval_batch_size", least=1)
    if batch:
        config.put("evaluation.micro_batch_size", batch, batch.value)
    else:
        note = f"micro_batch_size, as {data.key} asks for an evaluation"
        micro = config.builder.job.micro_batch_size
        config.builder.derived("evaluation.micro_batch_size", micro, note, "micro_batch_size")
