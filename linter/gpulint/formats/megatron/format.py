"""Megatron-LM: the flags of pretrain_gpt.py and its kin, and the model_config.yaml of its functional tests.

Facts from Megatron-LM core 0.20.0 at d98e8a64dd (megatron/training/arguments.py, megatron/core), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node
from ...upstream import megatron as upstream
from ..core.arguments import Arguments
from ..core.backends.fsdp import FSDP
from ..core.backends.megatron import (
    BACKEND,
    OFFLOAD,
    OPTIMIZER,
    STRATEGIES,
    ZERO,
    accumulation,
    chunks,
    core,
    divides_states,
    fused_loss,
    gpus,
    granularity,
    layout,
    megatron_fsdp,
    mixed_precision,
    offloaded_optimizer,
    optimizer_states,
    recompute_keys,
    recomputed_modules,
)
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, Written, only
from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Reading
from ..core.model_facts import find_model
from ..core.references import find
from .model import GPT2_VOCABULARY, VOCABULARIES, padded, sizes_of
from .model import set_model as set_model_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...job.job import Job
    from ...source.document import Document
    from ..core.bindings.rows import Row
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "megatron"
UPSTREAM = "Megatron-LM core 0.20.0"

FORKED_FROM = "0.2.0"
"""The release that Megatron-DeepSpeed has in its tree (megatron/core/package_info.py at 4efb479d)."""

_UNREAD = {
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


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run. Raises NoJobError for other scripts, and models that a Job cannot say."""
    options = normal(document)
    keys = Arguments(options.root, dashes=True)
    reader = Reader(options, project, NAME, UPSTREAM, checked=document, keys=keys)
    _refuse(reader)
    reader.bind(TABLE.rows)
    if reader.value(FLAG, "bf16") and (both := reader.given(FLAG, "fp16")) and both.value:
        reader.contradiction(both, "bf16 is true", "Megatron stops: one of the two")
    reader.reading.problems[:0] = unknown_flat_keys(options, NAME, UPSTREAM, _passes)
    return reader.reading


def _refuse(reader: Reader) -> None:
    """Raises NoJobError for what a Job cannot say."""
    path = reader.document.path
    for key, reason in _UNREAD.items():
        given = reader.keys.raw(key)
        if given is not None and given.value not in (None, False, 0):
            raise NoJobError(path, reason)
    if reader.value(TEXT, "vocab_file", default="").endswith("vocab.txt") and reader.keys.raw("merge_file") is None:
        raise NoJobError(path, "a BERT or T5 model")
    if reader.keys.raw("num_layers") is None and not reader.value(FLAG, "use_checkpoint_args"):
        raise NoJobError(path, "names no layers: a fragment, or a model that a checkpoint describes")


def set_model(reader: Reader) -> None:
    """The model as a config.json of the dimensions that the options state."""
    vocabulary, stated = _vocabulary(reader)
    grouped = ("num_query_groups",) if reader.value(FLAG, "group_query_attention") else ()
    kind = reader.value(TEXT, "position_embedding_type", default="learned_absolute")
    sizes = sizes_of(
        reader,
        gated=bool(reader.value(FLAG, "swiglu") or reader.value(FLAG, "quick_geglu")),
        tied=not reader.value(FLAG, "untie_embeddings_and_output_weights"),
        learned=kind == "learned_absolute" and not reader.value(FLAG, "use_rotary_position_embeddings"),
        vocabulary=vocabulary,
        groups=(*grouped, "num_key_value_heads"),
    )
    missing = "num-layers, hidden-size or num-attention-heads is filled in elsewhere"
    unknown = "" if stated else "; nothing states the vocabulary: that of GPT-2 is assumed"
    set_model_of(reader, "num_layers", "megatron", sizes, missing, unknown)


def _vocabulary(reader: Reader) -> tuple[int, bool]:
    """`--vocab-size`, or the tokenizer's, padded as Megatron does, and whether it is known."""
    stated = reader.value(POSITIVE, "padded_vocab_size")
    if stated:
        return stated, True
    given, model = reader.value(POSITIVE, "vocab_size"), reader.value(TEXT, "tokenizer_model")
    kind = reader.value(TEXT, "tokenizer_type")
    rows = given + (kind == "NullTokenizer") if given else 0
    if not rows and model and kind == "HuggingFaceTokenizer":
        found = find_model(model, reader.document.path, reader.project.root)
        rows = found.config.get("vocab_size") or 0 if found else 0
    if not rows:
        rows = VOCABULARIES.get(kind or ("GPT2BPETokenizer" if reader.keys.raw("merge_file") else ""), 0)
    divisor = reader.value(POSITIVE, "make_vocab_size_divisible_by", default=128)
    return padded(rows or GPT2_VOCABULARY, divisor, reader.job.parallelism.tensor), bool(rows)


def set_chunks(reader: Reader) -> None:
    """The chunks of the interleaved schedule, by the layers of one."""
    each, layers = reader.given(POSITIVE, "num_layers_per_virtual_pipeline_stage"), reader.value(POSITIVE, "num_layers")
    stages = reader.job.parallelism.pipeline
    if each and layers and stages > 1 and (number := layers // stages // each.value) > 1:
        reader.set("parallelism.virtual_stages", each, number)


def _is_forked(reader: Reader) -> bool:
    """Whether Megatron-DeepSpeed runs."""
    return bool(reader.value(FLAG, "deepspeed"))


def _set_zero(reader: Reader) -> None:
    """ZeRO of Megatron-DeepSpeed: `--zero-stage`, else what its DeepSpeed config says; without either none is known."""
    if not _is_forked(reader) or reader.job.parallelism.fsdp is not None:
        return
    named = reader.given(TEXT, "deepspeed_config")
    found = find(str(named.value), reader.document.path, reader.project).document if named else None
    section = found.root.get("zero_optimization") if found is not None else None
    written = section.get("stage") if section is not None and section.is_mapping else None
    stage = reader.given(integer(0), "zero_stage")
    if named and written is not None and written.value in (0, 1, 2, 3):
        reader.set(f"{ZERO}stage", named, written.value, "the stage that its file says")
    elif stage and stage.value <= 3:
        reader.set(f"{ZERO}stage", stage)
    else:
        raise NoJobError(
            reader.document.path, "a Megatron-DeepSpeed run whose ZeRO stage stands in a file that is not here"
        )
    reader.derived(f"{ZERO}library", "deepspeed", "Megatron-DeepSpeed's ZeRO", f"{ZERO}stage")


def _set_deferral(reader: Reader) -> None:
    """`defer_embedding_wgrad_compute` of a pipeline, for all micro batches of a step or `wgrad_deferral_limit`."""
    given, job = reader.given(FLAG, "defer_embedding_wgrad_compute"), reader.job
    if given and given.value and job.parallelism.pipeline > 1:
        steps = job.gradient_accumulation_steps
        limit = reader.value(POSITIVE, "wgrad_deferral_limit", default=steps)
        reader.set("loss.deferred", given, min(steps, limit), "micro batches of a step")


def _set_attention(reader: Reader) -> None:
    """Transformer Engine's layers, or Megatron's own, whose attention is fused only where a flag asks for it."""
    given = reader.given(TEXT, "transformer_impl")
    release = reader.job.versions.get(upstream.NAME)
    if given and given.value == "local":
        reader.set("without_transformer_engine", given, True)
    elif given is None and not upstream.TRANSFORMER_ENGINE.at(release):
        reader.default(
            "without_transformer_engine",
            True,
            f"transformer_impl local, before core {upstream.TRANSFORMER_ENGINE.since}",
        )
    former = reader.value(FLAG, "use_legacy_models", default=False)
    if not upstream.CORE_MODELS.at(release):
        former = not reader.value(FLAG, "use_mcore_models", default=False)
    if reader.job.without_transformer_engine and not (former and any(reader.value(FLAG, name) for name in FLASH)):
        note = "Megatron's own attention, which is not fused"
        reader.put(
            "attention",
            Written("eager", note) if given else Derived("eager", note, "without_transformer_engine"),
            given,
        )


FLASH = ("use_flash_attn", "use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton", "use_flash_attn_builder")
"""What makes Megatron's layers from before the core take flash attention; the last four are Megatron-DeepSpeed's."""


def _in_buffer(job: Job) -> bool:
    return job.parallelism.zero is not None and job.parallelism.zero.library == "megatron"


def optimizer_rows(stage: Default) -> tuple[Row, ...]:
    """The distributed optimizer divides states over the data parallel ranks; Megatron-FSDP and FSDP2 the rest, too.

    `stage` is that of ZeRO where no flag says it.
    """
    return (
        Key(
            "optimizer.name", "optimizer", OPTIMIZER,
            Default("adamw_torch_fused", "adam: the fused one of Transformer Engine or apex"),
        ),
        optimizer_states(),
        *megatron_fsdp("use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp"),
        _set_zero,
        *divides_states("use_distributed_optimizer", stage),
        *only(
            _in_buffer,
            Key(
                f"{ZERO}replicas", "num_distributed_optimizer_instances", POSITIVE,
                when=lambda job: job.get(f"{ZERO}stage") == 1,
            ),
            offloaded_optimizer("optimizer_cpu_offload", "optimizer_offload_fraction", usual=1.0),
        ),
    )  # fmt: skip


_OFFLOAD = ("optimizer_cpu_offload", "use_precision_aware_optimizer", "use_distributed_optimizer")
"""Offloaded states are those of the precision-aware optimizer."""


def zero_keys(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The distributed optimizer, Megatron-FSDP over it, or states in main memory, which that does not offer."""
    stage, device = changes.get(f"{ZERO}stage"), changes.get(f"{OFFLOAD}device")
    if len(changes) > (stage is not None) + (device is not None) or ((stage or 0) > 1 and device is not None):
        return None
    if device is not None and reading.job.parallelism.fsdp is not None:
        return None
    wanted = _stage_keys(stage) if stage is not None else {}
    if wanted is None or device not in (None, "none", "cpu"):
        return None
    if device == "cpu":
        wanted |= dict.fromkeys(_OFFLOAD, True)
    elif device == "none":
        wanted |= {"optimizer_cpu_offload": None, "optimizer_offload_fraction": None}
    return wanted


def _stage_keys(value: int) -> Keys | None:
    if value == 1:
        return {"use_distributed_optimizer": True}
    names = {2: "shard_grad_op", 3: "full_shard"}
    words = {sharding: word for word, sharding in STRATEGIES.items()}
    if value not in names:
        return None
    return {
        "use_distributed_optimizer": True, "use_megatron_fsdp": True,
        "data_parallel_sharding_strategy": words[names[value]],
    }  # fmt: skip


def spelled(reading: Reading, option: str) -> str:
    """The option as the file spells it: a flag, or a key of MODEL_ARGS."""
    dashed = option.replace("_", "-")
    if reading.config.root.get("MODEL_ARGS") is not None:
        return f"MODEL_ARGS.--{dashed}"
    written = reading.config.root.keys()
    return next((str(key) for key in written if str(key).replace("_", "-") == dashed), dashed)


SAYS = {
    "activation_checkpointing": recompute_keys(
        "recompute_", "recompute_activations", "checkpoint_activations", "deepspeed_activation_checkpointing"
    ),
    f"{FSDP}sharding": lambda _, value: _stage_keys({"full_shard": 3, "shard_grad_op": 2}.get(value, 0)),
}

LAYOUT = (
    Key(
        "parallelism.expert", "moe_expert_parallel_size", POSITIVE, note="Megatron-DeepSpeed's expert parallelism",
        adds=False,
    ),
    *layout(),
)  # fmt: skip

TABLE = Table(
    (
        *runs_on("megatron"),
        Fixed("kind", Derived("training", "a training script of Megatron-LM")),
        Fixed("objective", Derived("pretrain", "Megatron-LM pretrains")),
        core(FORKED_FROM, "the core that Megatron-DeepSpeed brings along", _is_forked),
        Fixed("packing", Derived(True, "rows are cut out of a stream of tokens", "objective")),
        *LAYOUT,
        set_model,
        gpus(),
        size("micro_batch_size", "micro_batch_size"),
        size("sequence_length", "seq_length"),
        accumulation("global_batch_size"),
        set_chunks,
        chunks("num_virtual_stages_per_pipeline_rank"),
        Key("weights.dtype", "bf16", FLAG, to={True: "bfloat16"}, back=NEVER),
        Key(
            "weights.dtype", "fp16", FLAG, Default("float32", "neither --bf16 nor --fp16"), {True: "float16"}, NEVER,
        ),
        *mixed_precision(),
        Key("precision.compute", "fp8_format", TEXT, to=lambda _word, _job: "float8-te"),
        *optimizer_rows(Default(0, "no distributed optimizer")),
        Key("activation_checkpointing", "recompute_activations", FLAG, to={True: "selective"}),
        Key(
            "activation_checkpointing", ("checkpoint_activations", "deepspeed_activation_checkpointing"), FLAG,
            to={True: "full"}, note="every layer, as releases before 3.0 and forks spell it",
        ),
        *granularity("recompute_granularity"),
        recomputed_modules(),
        fused_loss(lambda _: False),
        _set_deferral,
        _set_attention,
        Key(
            "attention", "attention_backend", BACKEND,
            Default("flash_attention_2", "attention_backend auto: Transformer Engine takes flash"), back=NEVER,
        ),
        *USUAL,
    ),
    says=SAYS,
    total="global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
    zero=zero_keys,
    spelled=spelled,
    named=lambda _, keys: {key.rpartition("--")[2]: value for key, value in keys.items()},
)  # fmt: skip


def _passes(key: str, close: str, known: Collection[str]) -> bool:
    """Scripts of one's own add options freely; argparse takes the beginning of an option for it."""
    negated = key.removeprefix("no_") in known or f"no_{key}" in known
    return negated or not close or any(option.startswith(key) for option in known)


FORMAT = Format.of_table(NAME, "Megatron-LM options", UPSTREAM, read, TABLE, "not in the options: the launcher")
