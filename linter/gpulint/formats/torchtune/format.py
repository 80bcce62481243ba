"""torchtune recipes: YAML whose sections name Python callables (`_component_`), read with OmegaConf.

Facts from torchtune 0.7.0 at bd2a0fc7 (recipes/*.py, torchtune/training, torchtune/modules/loss), read statically. All
weights, adapters, gradients and moments have the dtype of the file: nothing is kept in float32 beside bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import Assumed, Derived, Fixed, Key, Table, Written, among
from ..core.bindings.spelling import CLASSES, dtype, optimizer
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.interpolation import interpolated
from ..core.keys import load, unknown_keys
from ..core.typos import nearest, unknown_key
from .launch import GPUS, Recipe, recipe_of
from .model import MODEL, builders

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ...source.node import Node
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "torchtune"
UPSTREAM = "torchtune 0.7.0"
CHUNKS = 8
"""`num_output_chunks` of LinearCrossEntropyLoss and CEWithChunkedOutputLoss."""

_COMMAND = ("recipe", "config", "nproc_per_node", "nnodes", "standalone", "rdzv_backend", "rdzv_endpoint", "rdzv_id")
"""Options of `tune run`, which come with the flags of a command."""

_CHUNKED = ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss")


def read(document: Document, project: Project) -> Reading:
    """The Job of a training recipe. Raises NoJobError for what trains nothing, or nothing that a Job can say."""
    whole = interpolated(document)
    _refuse(whole, recipe_of(whole))
    reader = Reader(whole, project, NAME, UPSTREAM, checked=document)
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = _key_problems(document)
    return reader.reading


def _refuse(document: Document, recipe: Recipe) -> None:
    """Raise NoJobError for evaluation, generation, quantisation, and training that a Job cannot say."""
    root = document.root
    reason = ""
    component = root.find("model._component_")
    built = str(component.value.value) if component else ""
    if root.get("optimizer") is None and root.get("policy_model") is None:
        if root.get("model") is None:
            reason = "starts a config that torchtune ships, or a fragment: it names no model"
        else:
            reason = "trains nothing: an evaluation, generation or quantisation recipe of torchtune"
    elif root.get("teacher_model") is not None:
        reason = "knowledge distillation: gpulint has no teacher models"
    elif root.get("policy_model") is not None or "grpo" in recipe.name or root.get("grpo_samples") is not None:
        reason = "online reinforcement learning of torchtune: gpulint does not know its phases"
    elif "qat" in recipe.name or root.find("quantizer._component_") is not None:
        reason = "quantisation-aware training: gpulint does not know the tensors of fake quantisation"
    elif ".llama3_2_vision." in built or ".llama4." in built:
        reason = "a model with a vision tower: gpulint does not know torchtune's parts of it"
    elif root.get("early_exit_loss") is not None:
        reason = "training with early exits: gpulint has no losses at inner layers"
    if reason:
        raise NoJobError(document.path, reason)


def _kind(reader: Reader) -> Derived:
    return Derived("training", f"the recipe {recipe_of(reader.document).name or 'of this config'}")


def _class(path: str) -> str:
    return path.rpartition(".")[2]


def _objective(loss: str, _job: Job) -> Any:
    return "dpo" if _class(loss) in ("DPOLoss", "RSOLoss", "SimPOLoss") else _SFT


def _set_optimizer(reader: Reader) -> None:
    given = reader.given(optimizer(any_other=True), "optimizer._component_")
    if given:
        fused = given.value == "adamw_torch" and reader.on("optimizer.fused")
        reader.set("optimizer.name", given, "adamw_torch_fused" if fused else given.value)


def _check_in_backward(reader: Reader) -> None:
    if not reader.job.optimizer.in_backward:
        return
    steps, clip = reader.given(integer(2), "gradient_accumulation_steps"), reader.given(NUMBER, "clip_grad_norm")
    for given, what in ((steps, "accumulation"), (clip, "clipping")):
        if given:
            message = f"the full recipes stop: no {what} beside it"
            reader.contradiction(given, "optimizer_in_bwd is true", message)


def _set_checkpointing(reader: Reader) -> None:
    """`enable_activation_checkpointing` over every layer, offloaded with its twin; else `ac_mode` (selective)."""
    given, offload = reader.given(FLAG, _ENABLED), reader.on(_OFFLOADED)
    mode, option, field = reader.given(TEXT, "ac_mode"), reader.keys.raw("ac_option"), "activation_checkpointing"
    on = bool(given and given.value)
    if offload and not on:
        message = "the recipes stop: offloading needs checkpointing"
        reader.contradiction(offload, f"{_ENABLED} is not true", message)
    if on and mode is None:
        reader.set(field, offload or given, "offload" if offload else "full")
    elif mode is None or on:
        reader.set(field, given, "none")
    elif mode.value == "selective" and option is not None and option.value == "op":
        reader.set(field, mode, "selective")
        reader.set("checkpoint_policy", option, "every_second_matmul")
    else:
        reader.set(field, mode, "full")
        number = reader.given(POSITIVE, "ac_option")
        if mode.value == "selective" and number:
            reader.set("checkpoint_every", number)


def _set_loss(reader: Reader) -> None:
    """The chunked losses make the 16-bit logits of a piece at a time and keep all pieces; else the model upcasts."""
    component, job = reader.given(TEXT, "loss._component_"), reader.job
    if component is None or _class(component.value) not in _CHUNKED:
        reader.default("loss.upcast", "model", "TransformerDecoder.forward makes float32 logits")
        return
    pieces = reader.value(POSITIVE, "loss.num_output_chunks", default=CHUNKS)
    reader.set("loss.kernel", component, "chunked")
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0)
    reader.derived("loss.chunk", -(-tokens // pieces) or None, f"{pieces} pieces of a step", "loss.kernel")
    reader.derived("loss.logits", "pieces", "the head makes the logits piece by piece", "loss.kernel")
    reader.derived("loss.upcast", "loss", "each piece becomes float32 in the loss", "loss.kernel")


def _set_evaluation(reader: Reader) -> None:
    if reader.given(POSITIVE, "run_val_every_n_steps"):
        reader.derived("evaluation.keeps_logits", False, "only the loss is kept")
    else:
        reader.default("evaluation.micro_batch_size", None)


def _key_problems(document: Document) -> list[Problem]:
    """Unknown top keys, which OmegaConf passes over, and parameters that a component does not take, which stop it."""
    used = {part.partition("}")[0].partition(".")[0] for part in document.text.split("${")[1:]}
    problems = unknown_keys(document, NAME, known=(*_COMMAND, *used))
    components: dict[str, list[str]] = load(NAME)["x-components"]
    _parameters(document.root, "", components, problems, 0)
    return problems


def _parameters(node: Node, prefix: str, components: dict[str, list[str]], problems: list[Problem], depth: int) -> None:
    if depth > 8:
        return
    component = node.get("_component_")
    known = components.get(str(component.value)) if component is not None else None
    for entry in node.entries():
        key = str(entry.key.value)
        dotted = f"{prefix}.{key}" if prefix else key
        if known is not None and key != "_component_" and key not in known:
            close = nearest(key, known)
            suggestion = f"{prefix}.{close}" if prefix and close else close
            problems.append(unknown_key(entry, dotted, suggestion, "refused", UPSTREAM))
        if entry.value.is_mapping:
            _parameters(entry.value, dotted, components, problems, depth + 1)


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    if value == "none":
        return {_ENABLED: False, _OFFLOADED: None}
    if value in ("full", "offload"):
        return {_ENABLED: True, _OFFLOADED: True if value == "offload" else None, "ac_mode": None, "ac_option": None}
    return None


def _optimizer(reading: Reading, value: str) -> Keys | None:
    """bitsandbytes' optimizers do not take the DTensors of FSDP2."""
    fits = value == "sgd" or reading.job.parallelism.fsdp is None
    return {"optimizer._component_": CLASSES[value], "optimizer.fused": None} if value in CLASSES and fits else None


def _in_backward(_reading: Reading, value: bool) -> Keys | None:
    return {"optimizer_in_bwd": True, "clip_grad_norm": None} if value else None


def _kernel(reading: Reading, value: str) -> Keys | None:
    chunked = value in ("chunked", "liger") and reading.job.objective == "sft"
    return {"loss._component_": "torchtune.modules.loss.LinearCrossEntropyLoss"} if chunked else None


def _adapter(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys of a builder with LoRA in place of the file's, and the recipe that trains it; None where there is none.

    The recipe stands in the `tune run` command, which no edit of the file changes.
    """
    quantized = changes.get("weights.quantization.method")
    named = reading.config.root.find("model._component_")
    if set(changes) - {"method", "weights.quantization.method"} or changes.get("method") != "lora" or named is None:
        return None
    package, _, name = str(named.value.value).rpartition(".")
    packed = f"{package}.qlora_{name}" if quantized else ""
    builder = packed if packed in builders() else f"{package}.lora_{name}"
    if builder not in builders():
        return None
    single = reading.job.parallelism.fsdp is None
    return {
        "recipe": f"lora_finetune_{'single_device' if single else 'distributed'}",
        "model._component_": builder,
        "model.lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
        "model.apply_lora_to_mlp": True,
        **({"model.quantize_base": True} if quantized and builder != packed else {}),
    }


_ENABLED, _OFFLOADED = "enable_activation_checkpointing", "enable_activation_offloading"
_SFT = Derived("sft", "a fine-tuning recipe")

TABLE = Table(
    (
        *runs_on("torchtune"),
        Fixed("kind", _kind),
        Key(
            "weights.dtype", "dtype", dtype(written={"bfloat16": "bf16", "float32": "fp32"}),
            Assumed("bfloat16", "no dtype that torchtune knows; bf16 as in its recipes"),
            back=among("bfloat16", "float32"), note="weights, adapters, gradients and moments alike",
        ),
        *MODEL,
        Key("objective", "loss._component_", TEXT, _SFT, _objective),
        Fixed(
            "rl.reference_model",
            lambda reader: Derived(reader.job.method != "lora", "LoRA DPO disables the adapters", "objective"),
            when=lambda job: job.objective == "dpo",
        ),
        size("micro_batch_size", "batch_size"),
        size("gradient_accumulation_steps", "gradient_accumulation_steps", 1),
        Key("packing", "dataset.packed", FLAG),
        Key(
            "sequence_length", "tokenizer.max_seq_len", POSITIVE,
            Assumed(None, "tokenizer.max_seq_len bounds the rows, and is not stated"),
            null=Written(None, "null: rows are never cut, the longest of the data decides"),
        ),
        _set_optimizer,
        Key(
            "optimizer.foreach", "optimizer.foreach", FLAG,
            when=lambda job: job.optimizer.name in ("adamw_torch", "adamw_torch_fused"),
        ),
        Key("optimizer.in_backward", "optimizer_in_bwd", FLAG, default=False),
        _check_in_backward,
        _set_checkpointing,
        Key("compile", "compile", FLAG),
        _set_loss,
        _set_evaluation,
        Key(
            "evaluation.micro_batch_size", "batch_size_val", POSITIVE,
            lambda reader: Derived(reader.job.micro_batch_size, "as in training"),
        ),
        *GPUS,
        *USUAL,
    ),
    says={
        "activation_checkpointing": _checkpointing,
        "optimizer.name": _optimizer,
        "optimizer.in_backward": _in_backward,
        "loss.kernel": _kernel,
    },
    ignored=frozenset({"loss.chunk", "loss.logits", "loss.upcast"}),
    told=_adapter,
)  # fmt: skip


def loss_chunk(micro_batch: int, length: int) -> int:
    """Tokens of a piece of the chunked loss."""
    return -(-micro_batch * length // CHUNKS)


FORMAT = Format.of_table(
    NAME, "torchtune recipe config", UPSTREAM, read, TABLE,
    "--nproc_per_node of the `tune run` command, or of the one in the header comment",
)  # fmt: skip
