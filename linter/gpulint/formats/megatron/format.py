"""Megatron-LM: the flags of pretrain_gpt.py and its kin, and the model_config.yaml of its functional tests.

Facts from Megatron-LM core 0.20.0 at d98e8a64dd (megatron/training/arguments.py, megatron/core), read statically.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node
from ...upstream.megatron import CORE_MODELS, TRANSFORMER_ENGINE
from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.model_facts import find_model
from ..core.native import NativeConfig
from ..core.references import find
from .model import GPT2_VOCABULARY, VOCABULARIES, Sizes, config_of, dropped, feed_forward, padded
from .plan import (
    CORE,
    set_accumulation,
    set_chunks,
    set_core,
    set_deferral,
    set_degrees,
    set_fusion,
    set_gpus,
    set_recomputation,
    set_sixteen_bits,
    set_states,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...source.document import Document
    from ..core.format import Project

NAME = "megatron"
UPSTREAM = "Megatron-LM core 0.20.0"

FORKED_FROM = "0.2.0"
"""The release that Megatron-DeepSpeed has in its tree (megatron/core/package_info.py at 4efb479d)."""

_SIGNS = frozenset(
    {"num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "tensor_model_parallel_size"}
)

_OTHERS = {
    "perform_rl_step": "reinforcement learning of Megatron-LM: gpulint does not know its phases",
    "rollout_batch_size": "reinforcement learning around Megatron-LM: gpulint does not know its phases",
    "num_tokens_to_generate": "an inference script of Megatron-LM",
    "hybrid_layer_pattern": "a hybrid of Mamba and attention layers by pattern",
    "hybrid_override_pattern": "a hybrid of Mamba and attention layers by pattern",
    "encoder_num_layers": "a model with an encoder",
    "img_h": "a vision model",
    "mtp_num_layers": "multi-token prediction: gpulint has no further heads",
    "mask_prob": "a BERT or T5 model",
}  # fmt: skip
"""Options with which a run is nothing that a Job can say."""


def normal(document: Document) -> Document:
    """The options as a mapping without dashes in front: flags as they are, or the MODEL_ARGS of a test."""
    node = document.root.get("MODEL_ARGS")
    if node is None:
        return document
    root = Node("mapping", [], node.span)
    for entry in node.entries():
        key = Node("scalar", str(entry.key.value).lstrip("-"), entry.key.span, entry.key.raw)
        root.value.append(Entry(key, entry.value))
    return document._replace(roots=[root])


def recognise(document: Document) -> bool:
    """MODEL_ARGS with Megatron's options, or flags most of which are."""
    node = document.root.get("MODEL_ARGS")
    if node is not None:
        return node.is_mapping
    if document.syntax != "flags":
        return False
    written = document.root.keys()
    return len(_SIGNS & {str(key).replace("-", "_") for key in written}) >= 3


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for other scripts, and models that a Job cannot say."""
    config = NativeConfig(NAME, UPSTREAM, normal(document), project, "megatron", dashes=True)
    config.reading.config = document
    builder, keys = config.builder, config.keys
    for key, reason in _OTHERS.items():
        given = keys.raw(key)
        if given is not None and given.value not in (None, False, 0):
            raise NoJobError(document.path, reason)
    words = keys.text("vocab_file")
    if words and words.value.endswith("vocab.txt") and keys.raw("merge_file") is None:
        raise NoJobError(document.path, "a BERT or T5 model")
    if keys.raw("num_layers") is None and not keys.is_on("use_checkpoint_args"):
        raise NoJobError(document.path, "names no layers: a fragment, or a model that a checkpoint describes")
    builder.derived("kind", "training", "a training script of Megatron-LM")
    builder.derived("objective", "pretrain", "Megatron-LM pretrains")
    if keys.is_on("deepspeed"):
        set_core(config, FORKED_FROM, "the core that Megatron-DeepSpeed brings along")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    replica = set_degrees(config, keys)
    experts = keys.integer("moe_expert_parallel_size", least=1)
    if experts:
        config.put("parallelism.expert", experts, experts.value, "Megatron-DeepSpeed's expert parallelism")
    set_model(config)
    ranks = set_gpus(config, replica, None)
    config.count("micro_batch_size", keys.integer("micro_batch_size", least=1), None, keys.blank("micro_batch_size"))
    config.count("sequence_length", keys.integer("seq_length", least=1), None, keys.blank("seq_length"))
    set_accumulation(config, keys.integer("global_batch_size", least=1), ranks)
    set_pipeline(config)
    _set_precision(config)
    set_optimizer(config)
    set_recomputation(config, keys, "recompute_")
    set_fusion(config, keys, usual=False)
    set_deferral(config, keys)
    former = keys.flag("checkpoint_activations", "deepspeed_activation_checkpointing")
    if former and former.value:
        config.put("activation_checkpointing", former, "full", "every layer, as releases before 3.0 and forks spell it")
    selective = keys.flag("recompute_activations")
    if selective and selective.value:
        config.put("activation_checkpointing", selective, "selective")
        builder.derived("checkpoint_policy", "core_attention", "selective", "activation_checkpointing")
    _set_attention(config)
    config.fill()
    config.reading.problems[:0] = unknown_flat_keys(config.document, NAME, UPSTREAM, _passes)
    return config.reading


def set_model(config: NativeConfig) -> None:
    """The model as a config.json of the dimensions that the options state."""
    builder, keys = config.builder, config.keys
    layers, hidden = keys.integer("num_layers", least=1), keys.integer("hidden_size", least=1)
    heads = keys.integer("num_attention_heads", least=1)
    if layers is None or hidden is None or heads is None:
        builder.assumed("model", None, "num-layers, hidden-size or num-attention-heads is filled in elsewhere")
        return
    gated = keys.is_on("swiglu") or keys.is_on("quick_geglu")
    width = keys.integer("ffn_hidden_size", least=1)
    intermediate = int(width.value) if width else feed_forward(hidden.value, gated=gated)
    groups = keys.integer("num_query_groups", least=1) if keys.is_on("group_query_attention") else None
    groups = groups or keys.integer("num_key_value_heads", least=1)
    channels = keys.integer("kv_channels", least=1)
    own = channels is not None and channels.value * heads.value != hidden.value
    positions = keys.integer("max_position_embeddings", least=1)
    kind = keys.text("position_embedding_type")
    learned = (kind is None or kind.value == "learned_absolute") and not keys.is_on("use_rotary_position_embeddings")
    experts = keys.integer("num_experts", "num_moe_experts", least=2)
    topk = keys.integer("moe_router_topk", least=1)
    expert_width = keys.integer("moe_ffn_hidden_size", least=1)
    shared = keys.integer("moe_shared_expert_intermediate_size", least=1)
    vocabulary, stated = _vocabulary(config)
    sizes = Sizes(
        hidden.value, layers.value, heads.value, vocabulary, intermediate,
        groups=groups.value if groups else None, head_dim=channels.value if own and channels else None, gated=gated,
        tied=not keys.is_on("untie_embeddings_and_output_weights"),
        learned_positions=positions.value if learned and positions else 0,
        experts=experts.value if experts else 0, topk=topk.value if topk else 2,
        expert_hidden=expert_width.value if expert_width else intermediate, shared_hidden=shared.value if shared else 0,
        dense_layers=_dense_layers(config), latent=_latent(config),
    )  # fmt: skip
    model = config_of(f"megatron-{sizes.layers}x{sizes.hidden}", dropped(sizes, keys, 0.1))
    note = f"the stated dimensions, as a {model['model_type']} of Transformers"
    unknown = "" if stated else "; nothing states the vocabulary: that of GPT-2 is assumed"
    config.put("model", layers, model, note + unknown)


def _vocabulary(config: NativeConfig) -> tuple[int, bool]:
    """`--vocab-size`, or the tokenizer's, padded as Megatron does, and whether it is known."""
    keys = config.keys
    stated = keys.integer("padded_vocab_size", least=1)
    if stated:
        return int(stated.value), True
    given, kind, model = keys.integer("vocab_size", least=1), keys.text("tokenizer_type"), keys.text("tokenizer_model")
    rows = int(given.value) + (1 if kind and kind.value == "NullTokenizer" else 0) if given else 0
    if not rows and model and kind and kind.value == "HuggingFaceTokenizer":
        found = find_model(model.value, config.document.path, config.project.root)
        rows = found.config.get("vocab_size") or 0 if found else 0
    if not rows:
        rows = VOCABULARIES.get(str(kind.value) if kind else "GPT2BPETokenizer" if keys.raw("merge_file") else "", 0)
    divisor = keys.integer("make_vocab_size_divisible_by", least=1)
    tensor = config.builder.job.parallelism.tensor
    return padded(rows or GPT2_VOCABULARY, divisor.value if divisor else 128, tensor), bool(rows)


def _dense_layers(config: NativeConfig) -> int:
    """Leading layers without experts: `--moe-layer-freq "([0]*3+[1]*58)"`, or a list with all its numbers."""
    given = config.keys.text("moe_layer_freq")
    count = 0
    for numbers, times in _RUN.findall(given.value.replace(" ", "")) if given else ():
        row = numbers.split(",")
        leading = next((index for index, number in enumerate(row) if number != "0"), len(row))
        if leading < len(row):
            return count + leading
        count += leading * int(times or 1)
    return count


_RUN = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?")
"""A part of the expression that `--moe-layer-freq` takes."""


def _latent(config: NativeConfig) -> dict[str, Any] | None:
    """Multi-latent attention; defaults of `MLATransformerConfig`."""
    keys = config.keys
    if not keys.is_on("multi_latent_attention"):
        return None
    found: dict[str, Any] = {"q_lora_rank": None}
    for key, name, usual in (
        ("kv_lora_rank", "kv_lora_rank", 512),
        ("q_lora_rank", "q_lora_rank", None),
        ("qk_head_dim", "qk_nope_head_dim", 128),
        ("qk_pos_emb_head_dim", "qk_rope_head_dim", 64),
        ("v_head_dim", "v_head_dim", 128),
    ):
        given = keys.integer(key, least=1)
        found[name] = given.value if given else usual
    return found


def _set_attention(config: NativeConfig) -> None:
    """Transformer Engine's layers, or Megatron's own, whose attention is fused only where a flag asks for it."""
    builder, keys = config.builder, config.keys
    backend, given = keys.text("attention_backend"), keys.text("transformer_impl")
    if given and given.value == "local":
        config.put("without_transformer_engine", given, True)
    elif given is None and not TRANSFORMER_ENGINE.at(builder.job.versions.get(CORE)):
        builder.default(
            "without_transformer_engine", True, f"transformer_impl local, before core {TRANSFORMER_ENGINE.since}"
        )
    if builder.job.without_transformer_engine and not _is_fused(config):
        note = "Megatron's own attention, which is not fused"
        if given:
            config.put("attention", given, "eager", note)
        else:
            builder.derived("attention", "eager", note, "without_transformer_engine")
    elif backend and backend.value in ("unfused", "local"):
        config.put("attention", backend, "eager")
    else:
        builder.default("attention", "flash_attention_2", "attention_backend auto: Transformer Engine takes flash")


def _is_fused(config: NativeConfig) -> bool:
    """Whether a flag makes Megatron's own layers take flash attention: those from before the core, which has none."""
    keys = config.keys
    newer = CORE_MODELS.at(config.builder.job.versions.get(CORE))
    former = keys.is_on("use_legacy_models") if newer else not keys.is_on("use_mcore_models")
    return former and any(keys.is_on(name) for name in FLASH)


FLASH = ("use_flash_attn", "use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton", "use_flash_attn_builder")
"""The last four are of Megatron-DeepSpeed."""


def set_pipeline(config: NativeConfig) -> None:
    """The chunks of the interleaved schedule."""
    keys, job = config.keys, config.builder.job
    each = keys.integer("num_layers_per_virtual_pipeline_stage", least=1)
    chunks = keys.integer("num_virtual_stages_per_pipeline_rank", least=1)
    layers = keys.integer("num_layers", least=1)
    if each and layers:
        set_chunks(config, each, layers.value // job.parallelism.pipeline // each.value)
    elif chunks:
        set_chunks(config, chunks, chunks.value)


def _set_precision(config: NativeConfig) -> None:
    """bf16 accumulates gradients in float32; fp16 only where `accumulate_allreduce_grads_in_fp32` says so."""
    builder, keys = config.builder, config.keys
    bf16, fp16 = keys.flag("bf16"), keys.flag("fp16")
    whole = keys.is_on("accumulate_allreduce_grads_in_fp32")
    if bf16 and bf16.value:
        reduced = keys.text("main_grads_dtype")
        low = (reduced is not None and reduced.value == "bf16") or keys.is_on("grad_reduce_in_bf16")
        set_sixteen_bits(config, bf16, "bfloat16", "bfloat16" if low else "float32")
    elif fp16 and fp16.value:
        set_sixteen_bits(config, fp16, "float16", "float32" if whole else "float16")
    else:
        builder.default("weights.dtype", "float32", "neither --bf16 nor --fp16")
    if bf16 and fp16 and bf16.value and fp16.value:
        config.contradiction(fp16, "bf16 is true", "Megatron stops: one of the two")
    fp8 = keys.text("fp8_format")
    if fp8:
        config.put("precision.compute", fp8, "float8-te")


_STRATEGIES = {"no_shard": "no_shard", "optim_grads": "shard_grad_op", "optim_grads_params": "full_shard"}
"""What Megatron-FSDP calls what it divides; `optim` alone divides no more than the distributed optimizer."""


def set_optimizer(config: NativeConfig, *, usual: int = 0) -> None:
    """The distributed optimizer divides states over the data parallel ranks; Megatron-FSDP and FSDP2 the rest, too."""
    builder, keys = config.builder, config.keys
    given = keys.text("optimizer")
    name = {"adam": "adamw_torch_fused", "sgd": "sgd", "muon": "muon", "lion": "lion_pytorch"}
    if given and given.value in name:
        config.put("optimizer.name", given, name[given.value])
    else:
        builder.default("optimizer.name", "adamw_torch_fused", "adam: the fused one of Transformer Engine or apex")
    set_states(config, keys)
    for key in ("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp"):
        fsdp = keys.flag(key)
        if fsdp and fsdp.value:
            config.put("parallelism.fsdp.version", fsdp, 2)
            builder.derived("parallelism.fsdp.wrap", "transformer", "one unit a layer", "parallelism.fsdp.version")
            strategy = keys.text("data_parallel_sharding_strategy")
            if strategy and strategy.value in _STRATEGIES and key != "use_torch_fsdp2":
                config.put("parallelism.fsdp.sharding", strategy, _STRATEGIES[strategy.value])
            return
    if keys.is_on("deepspeed"):
        _set_zero(config)
        return
    distributed = keys.flag("use_distributed_optimizer")
    if distributed and distributed.value:
        config.put("parallelism.zero.stage", distributed, 1, "states divided like ZeRO-1")
        instances = keys.integer("num_distributed_optimizer_instances", least=1)
        if instances:
            config.put("parallelism.zero.replicas", instances)
    else:
        builder.default("parallelism.zero.stage", usual, "" if usual else "no distributed optimizer")
    builder.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")
    offload = keys.flag("optimizer_cpu_offload")
    if offload and offload.value:
        config.put("parallelism.zero.offload_optimizer.device", offload, "cpu")


def _set_zero(config: NativeConfig) -> None:
    """ZeRO of Megatron-DeepSpeed: `--zero-stage`, else what its DeepSpeed config says; without either none is known."""
    keys = config.keys
    named = keys.text("deepspeed_config")
    found = find(str(named.value), config.document.path, config.project).document if named else None
    section = found.root.get("zero_optimization") if found is not None else None
    written = section.get("stage") if section is not None and section.is_mapping else None
    stage = keys.integer("zero_stage", least=0)
    if named and written is not None and written.value in (0, 1, 2, 3):
        config.put("parallelism.zero.stage", named, written.value, "the stage that its file says")
    elif stage and stage.value <= 3:
        config.put("parallelism.zero.stage", stage)
    else:
        raise NoJobError(
            config.document.path, "a Megatron-DeepSpeed run whose ZeRO stage stands in a file that is not here"
        )


def _passes(key: str, close: str, known: Collection[str]) -> bool:
    """Scripts of one's own add options freely; argparse takes the beginning of an option for it."""
    negated = key.removeprefix("no_") in known or f"no_{key}" in known
    return negated or not close or any(option.startswith(key) for option in known)


describe, edits = written_by("megatron.edits")


FORMAT = Format(
    NAME, "Megatron-LM options", UPSTREAM, recognise, read, describe, edits, "not in the options: the launcher"
)
