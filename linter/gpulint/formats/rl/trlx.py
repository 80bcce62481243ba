"""trlx: the YAML of a TRLConfig, trained through accelerate.

Facts from trlx 0.7.0 (trlx/data/configs.py, trlx/data/method_configs.py, trlx/trainer/accelerate_*.py,
trlx/models/modeling_ppo.py), read statically. `from_pretrained` without a dtype: float32 weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.native import NativeConfig
from ..core.placeholders import is_blank
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "trlx"
UPSTREAM = "trlx 0.7.0"

_OBJECTIVES = {"ppo": "ppo", "sft": "sft", "rft": "sft"}
"""The method's name without `config` -> the Job's objective."""

_OPTIMIZERS = {"adamw_8bit_bnb": "adamw_bnb_8bit", "adam_8bit_bnb": "adamw_bnb_8bit", "adam": "adamw_torch",
               "adamw": "adamw_torch", "sgd": "sgd"}  # fmt: skip


def recognise(document: Document) -> bool:
    """`train` with trlx's pipeline or trainer beside `method` and `model`."""
    root = document.root
    train, method = root.get("train"), root.get("method")
    if document.syntax != "yaml" or train is None or not train.is_mapping or root.get("model") is None:
        return False
    return method is not None and not {"pipeline", "trainer"}.isdisjoint(train.keys())


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for NeMo's trainers, models with an encoder, and ILQL."""
    config = NativeConfig(NAME, UPSTREAM, document, project, None)
    builder, keys = config.builder, config.keys
    train, model, method = keys.mapping("train"), keys.mapping("model"), keys.mapping("method")
    trainer, kind = train.text("trainer"), model.text("model_arch_type")
    if trainer and trainer.value.startswith("NeMo"):
        raise NoJobError(document.path, "trained by NeMo, whose config it names")
    if kind and kind.value != "causal":
        raise NoJobError(document.path, "a model with an encoder and a decoder")
    name = method.text("name")
    word = name.value.lower().removesuffix("config") if name else "ppo"
    if word not in _OBJECTIVES:
        raise NoJobError(document.path, f"{word}: gpulint does not know its heads and losses")
    builder.derived("kind", "training", "a run of trlx")
    if name:
        config.put("objective", name, _OBJECTIVES[word])
    else:
        builder.default("objective", "ppo")
    path = model.text("model_path")
    if path and not is_blank(path.value):
        config.put("model", path)
    else:
        builder.assumed("model", None, "model_path is to be filled in")
    set_hardware(builder, project, None, sharded=False)
    builder.default("weights.dtype", "float32", "from_pretrained without a dtype")
    _set_trained(config)
    size = train.integer("minibatch_size", least=1) or train.integer("batch_size", least=1)
    config.count("micro_batch_size", size, None, train.blank("batch_size"))
    whole, part = train.integer("batch_size", least=1), train.integer("minibatch_size", least=1)
    if whole and part:
        config.put(
            "gradient_accumulation_steps", part, max(1, whole.value // part.value), "batch_size / minibatch_size"
        )
    config.count("sequence_length", train.integer("seq_length", least=1), None, train.blank("seq_length"))
    builder.default("padded", True, "prompts and responses are padded to one length")
    optimizer = keys.mapping("optimizer").text("name")
    if optimizer:
        config.put("optimizer.name", optimizer, _OPTIMIZERS.get(optimizer.value.lower(), optimizer.value.lower()))
    tokens = method.mapping("gen_kwargs").integer("max_new_tokens", least=1)
    if tokens:
        config.put("rl.completion_length", tokens)
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _set_trained(config: NativeConfig) -> None:
    """LoRA by `peft_config`; with `num_layers_unfrozen` the last layers, of which PPO keeps a frozen copy."""
    builder, section = config.builder, config.keys.mapping("model")
    online = builder.job.objective == "ppo"
    if online:
        builder.default("rl.value_model", "head", "AutoModelForCausalLMWithHydraValueHead")
    peft = section.mapping("peft_config")
    rank = peft.integer("r", least=1)
    entry = section.raw("peft_config")
    if entry and rank:
        config.put("method", entry, "lora")
        builder.derived("adapter.type", "lora", "peft_config", "method")
        config.put("adapter.r", rank)
        builder.derived("rl.reference_model", False, "the reference is the model without its adapter", "method")
        return
    layers = section.integer("num_layers_unfrozen")
    if layers is None or layers.value < 0:
        builder.default("method", "full")
        builder.default("rl.reference_model", online, "a whole copy of the model")
        return
    model = find_model(builder.job.model, config.document.path, config.project.root)
    if model is None:
        note = "the model's layers are not known"
        builder.assumed("trainable", None, note)
        return
    last = range(max(0, model.shape.layers - layers.value), model.shape.layers)
    config.put("trainable", layers, [rf"\.{index}\." for index in last] or ["lm_head"])
    builder.derived("rl.reference_model", False, "the frozen layers are shared with the reference", "trainable")


describe, edits = written_by("rl.trlx_edits")


FORMAT = Format(NAME, "trlx config", UPSTREAM, recognise, read, describe, edits, "not in the file: accelerate")
