"""torchtune recipes: YAML whose sections name Python callables (`_component_`), read with OmegaConf.

Facts from torchtune 0.7.0 at bd2a0fc7 (recipes/*.py, torchtune/training, torchtune/modules/loss), read statically. All
weights, adapters, gradients and moments have the dtype of the file: nothing is kept in float32 beside bf16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, NoJobError, Problem, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import load, unknown_key, unknown_keys
from ..core.native import DTYPES, NativeConfig, optimizer_of
from ..core.typos import nearest
from .launch import Recipe, recipe_of, set_gpus
from .model import set_model

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Node
    from ..core.format import Project

NAME = "torchtune"
UPSTREAM = "torchtune 0.7.0"
CHUNKS = 8
"""`num_output_chunks` of LinearCrossEntropyLoss and CEWithChunkedOutputLoss."""

_SECTIONS = (
    "model", "tokenizer", "checkpointer", "policy_model", "dataset", "optimizer", "loss", "metric_logger", "profiler",
)  # fmt: skip

_COMMAND = ("recipe", "config", "nproc_per_node", "nnodes", "standalone", "rdzv_backend", "rdzv_endpoint", "rdzv_id")
"""Options of `tune run`, which come with the flags of a command."""

_CHUNKED = ("LinearCrossEntropyLoss", "CEWithChunkedOutputLoss")


def recognise(document: Document) -> bool:
    """A section of torchtune's whose `_component_` lies in torchtune."""
    if document.syntax not in ("yaml", "json"):
        return False
    for name in _SECTIONS:
        section = document.root.get(name)
        component = section.get("_component_") if section is not None and section.is_mapping else None
        if component is not None and str(component.value).startswith("torchtune."):
            return True
    return False


def read(document: Document, project: Project) -> Reading:
    """The Job of a training recipe. Raises NoJobError for what trains nothing, or nothing that a Job can say."""
    whole = interpolated(document)
    recipe = recipe_of(whole)
    _refuse(whole, recipe)
    config = NativeConfig(NAME, UPSTREAM, whole, project, "torchtune")
    config.reading.config = document
    builder, keys = config.builder, config.keys
    builder.derived("kind", "training", f"the recipe {recipe.name or 'of this config'}")
    _set_dtype(config)
    with_lora = set_model(config, keys.mapping("model"))
    _set_objective(config, with_lora=with_lora)
    _set_batch(config)
    _set_optimizer(config)
    _set_checkpointing(config)
    _set_loss(config)
    _set_evaluation(config)
    set_gpus(config, recipe)
    config.fill()
    config.reading.problems[:0] = _key_problems(document)
    return config.reading


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


def _set_dtype(config: NativeConfig) -> None:
    given = config.keys.text("dtype")
    if given and given.value in DTYPES:
        config.put("weights.dtype", given, DTYPES[given.value], "weights, adapters, gradients and moments alike")
    else:
        config.builder.assumed("weights.dtype", "bfloat16", "no dtype that torchtune knows; bf16 as in its recipes")


def _set_objective(config: NativeConfig, *, with_lora: bool) -> None:
    """DPO with LoRA takes the policy without its adapters for the reference; full DPO holds a copy of the model."""
    loss = config.keys.mapping("loss").text("_component_")
    if loss and loss.value.rpartition(".")[2] in ("DPOLoss", "RSOLoss", "SimPOLoss"):
        config.put("objective", loss, "dpo")
        config.builder.derived("rl.reference_model", not with_lora, "LoRA DPO disables the adapters", "objective")
    else:
        config.builder.derived("objective", "sft", "a fine-tuning recipe")


def _set_batch(config: NativeConfig) -> None:
    """Rows of a step and their length: no bound means the longest row of the data, or the model's own when packed."""
    keys, builder = config.keys, config.builder
    config.count("micro_batch_size", keys.integer("batch_size", least=1), None, keys.blank("batch_size"))
    steps = "gradient_accumulation_steps"
    config.count(steps, keys.integer(steps, least=1), 1, keys.blank(steps))
    packed = keys.mapping("dataset").flag("packed")
    if packed:
        config.put("packing", packed)
    tokenizer = keys.mapping("tokenizer")
    length = tokenizer.integer("max_seq_len", least=1)
    if length:
        config.put("sequence_length", length)
        return
    stated = tokenizer.raw("max_seq_len")
    if stated is not None and stated.value is None:
        config.put("sequence_length", stated, None, "null: rows are never cut, the longest of the data decides")
    else:
        builder.assumed("sequence_length", None, "tokenizer.max_seq_len bounds the rows, and is not stated")


def _set_optimizer(config: NativeConfig) -> None:
    keys = config.keys
    section = keys.mapping("optimizer")
    component = section.text("_component_")
    name = str(component.value) if component else ""
    fused = section.flag("fused")
    if component and name in ("torch.optim.AdamW", "torch.optim.Adam"):
        config.put("optimizer.name", component, "adamw_torch_fused" if fused and fused.value else "adamw_torch")
        foreach = section.flag("foreach")
        if foreach:
            config.put("optimizer.foreach", foreach)
    elif component:
        config.put("optimizer.name", component, optimizer_of(name))
    inside = keys.flag("optimizer_in_bwd")
    if inside:
        config.put("optimizer.in_backward", inside)
    else:
        config.builder.default("optimizer.in_backward", False)
    if inside and inside.value:
        steps = keys.integer("gradient_accumulation_steps")
        clip = keys.number("clip_grad_norm")
        if steps and steps.value > 1:
            config.contradiction(steps, "optimizer_in_bwd is true", "the full recipes stop: no accumulation beside it")
        if clip:
            config.contradiction(clip, "optimizer_in_bwd is true", "the full recipes stop: no clipping beside it")


def _set_checkpointing(config: NativeConfig) -> None:
    """`enable_activation_checkpointing` over every layer, offloaded with its twin; else `ac_mode` (selective)."""
    keys = config.keys
    given, offload = keys.flag("enable_activation_checkpointing"), keys.flag("enable_activation_offloading")
    mode, option = keys.text("ac_mode"), keys.raw("ac_option")
    if offload and offload.value and not (given and given.value):
        message = "the recipes stop: offloading needs checkpointing"
        config.contradiction(offload, "enable_activation_checkpointing is not true", message)
    if given and given.value and mode is None:
        if offload and offload.value:
            config.put("activation_checkpointing", offload, "offload")
        else:
            config.put("activation_checkpointing", given, "full")
    elif mode and not (given and given.value):
        number = keys.integer("ac_option", least=1)
        if mode.value == "selective" and option is not None and option.value == "op":
            config.put("activation_checkpointing", mode, "selective")
            config.put("checkpoint_policy", option, "every_second_matmul")
        else:
            config.put("activation_checkpointing", mode, "full")
            if mode.value == "selective" and number:
                config.put("checkpoint_every", number)
    elif given:
        config.put("activation_checkpointing", given, "none")
    else:
        config.builder.default("activation_checkpointing", "none")
    compiled = keys.flag("compile")
    if compiled:
        config.put("compile", compiled)


def _set_loss(config: NativeConfig) -> None:
    """The chunked losses make the 16-bit logits of a piece at a time and keep all pieces; else the model upcasts."""
    loss = config.keys.mapping("loss")
    component = loss.text("_component_")
    if component is None or component.value.rpartition(".")[2] not in _CHUNKED:
        config.builder.default("loss.upcast", "model", "TransformerDecoder.forward makes float32 logits")
        return
    job = config.builder.job
    chunks = loss.integer("num_output_chunks", least=1)
    pieces = chunks.value if chunks else CHUNKS
    config.put("loss.kernel", component, "chunked")
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0)
    config.builder.derived("loss.chunk", -(-tokens // pieces) or None, f"{pieces} pieces of a step", "loss.kernel")
    config.builder.derived("loss.logits", "pieces", "the head makes the logits piece by piece", "loss.kernel")
    config.builder.derived("loss.upcast", "loss", "each piece becomes float32 in the loss", "loss.kernel")


def _set_evaluation(config: NativeConfig) -> None:
    keys = config.keys
    every, batch = keys.integer("run_val_every_n_steps", least=1), keys.integer("batch_size_val", least=1)
    if every is None:
        return
    if batch:
        config.put("evaluation.micro_batch_size", batch)
    else:
        config.builder.derived("evaluation.micro_batch_size", config.builder.job.micro_batch_size, "as in training")
    config.builder.derived("evaluation.keeps_logits", False, "only the loss is kept")


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


describe, edits = written_by("torchtune.edits")


def loss_chunk(micro_batch: int, length: int) -> int:
    """Tokens of a piece of the chunked loss."""
    return -(-micro_batch * length // CHUNKS)


FORMAT = Format(
    NAME, "torchtune recipe config", UPSTREAM, recognise, read, describe, edits,
    "--nproc_per_node of the `tune run` command, or of the one in the header comment",
)  # fmt: skip
