"""AutoTrain's parameters: where they stand, the task whose they are, and the arguments that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node
from ..core.arguments import Arguments, Given
from ..core.format import NoJobError
from ..core.keys import load
from ..core.sections import Sections

if TYPE_CHECKING:
    from ...source.document import Document

NAME = "autotrain"

_LLM = {"sft": "sft", "orpo": "orpo", "dpo": "dpo", "reward": "reward", "generic": "pretrain", "default": "pretrain"}
"""Trainers of the language models -> objective."""

_TASKS: tuple[tuple[str, str, str], ...] = (
    ("llm", "LLMTrainingParams", ""),
    ("lm_training", "LLMTrainingParams", ""),
    ("seq2seq", "Seq2SeqParams", "seq2seq"),
    ("text_token", "TokenClassificationParams", "token_classification"),
    ("token", "TokenClassificationParams", "token_classification"),
    ("text_single_column_regression", "TextRegressionParams", "classification"),
    ("text_regression", "TextRegressionParams", "classification"),
    ("text_extractive", "ExtractiveQuestionAnsweringParams", "question_answering"),
    ("ext", "ExtractiveQuestionAnsweringParams", "question_answering"),
    ("text", "TextClassificationParams", "classification"),
    ("vlm", "VLMTrainingParams", "sft"),
    ("st", "SentenceTransformersParams", ""),
    ("sentence", "SentenceTransformersParams", ""),
)
"""How a task begins, its parameters, and its objective; the first row that fits counts."""

LANGUAGE = "LLMTrainingParams"

_RENAMED = {"lr": "learning_rate", "peft": "use_peft"}
"""AutoTrain's parameter -> the argument that it becomes."""

_LENGTH = 1024
"""`configure_block_size` where `block_size` is -1 or absent, unless the tokenizer allows less."""


class Parameters(Arguments):
    """Keys of a file by their dotted place, and flags, which are the parameters that a file has in `params`."""

    __slots__ = ("top",)

    def __init__(self, document: Document) -> None:
        flags, section = document.syntax == "flags", document.root.get("params")
        node = document.root if flags else section if section is not None and section.is_mapping else None
        super().__init__(node, "" if flags else "params", dashes=flags)
        self.top: Arguments = Arguments(node, dashes=True) if flags else Sections(document.root)

    def raw(self, *names: str) -> Given | None:
        """The first of the names that is there, whatever its value."""
        for name in names:
            inside = name.startswith("params.")
            given = super().raw(name.removeprefix("params.")) if inside else self.top.raw(name)
            if given is not None:
                return given
        return None


def task_of(document: Document, keys: Arguments) -> tuple[Given | None, str, str]:
    """The key of the task, the class of its parameters, and the objective."""
    if document.syntax == "flags":
        trainer = keys.text("params.trainer")
        return trainer, LANGUAGE, _LLM.get(trainer.value.lower() if trainer else "default", "pretrain")
    task = keys.text("task")
    name = task.value.lower() if task else ""
    for start, parameters, objective in _TASKS:
        if name.startswith(start):
            if parameters == "SentenceTransformersParams":
                raise NoJobError(document.path, "sentence transformers train on losses over pairs, which are not known")
            own = keys.raw("params.trainer")
            stated = name.partition("-")[2] or (str(own.value) if own else "default")
            return task, parameters, objective or _LLM.get(stated, "pretrain")
    what = name or "no task"
    raise NoJobError(document.path, f"{what}: AutoTrain trains no language model with it")


def translated(arguments: Arguments, *, seq2seq: bool) -> Arguments:
    """The parameters under the names of the arguments that they become, each where it is written."""
    given = Arguments(None, arguments.prefix)
    given.entries = {name.replace("-", "_"): entry for name, entry in arguments.entries.items()}

    def means(name: str, entry: Entry, value: Any) -> None:
        node = Node("scalar", value, entry.value.span, entry.value.raw)
        node.path = entry.value.path
        given.entries[name] = Entry(entry.key, node)

    for theirs, ours in _RENAMED.items():
        if theirs in given:
            given.entries[ours] = given.entries[theirs]
    precision = given.text("mixed_precision")
    if precision and precision.value.lower() in ("fp16", "bf16"):
        means(precision.value.lower(), precision.entry, value=True)
    off = given.flag("disable_gradient_checkpointing")
    if off:
        means("gradient_checkpointing", off.entry, value=not off.value)
    adapter, quantization = given.flag("use_peft"), given.raw("quantization")
    if adapter and adapter.value:
        word = str(quantization.value).lower() if quantization else "int8" if seq2seq else "int4"
        source = quantization or adapter
        if word in ("int4", "int8"):
            means("load_in_4bit" if word == "int4" else "load_in_8bit", source.entry, value=True)
    for name in ("model_max_length", "trainer"):
        given.entries.pop(name, None)
    return given


def usual(parameters: str, given: Arguments) -> dict[str, Any]:
    """What an absent parameter means; `parameters` is the class of the task's."""
    language = parameters == LANGUAGE
    quantized = "load_in_4bit" in given or "load_in_8bit" in given
    own = {name: known.get("default") for name, known in load(NAME)["$defs"][parameters]["properties"].items()}
    return {
        "parameters": parameters,
        "batch_size": own["batch_size"],
        "gradient_accumulation": own["gradient_accumulation"],
        "bf16": False,
        "checkpointing": "full" if language else "none",
        "reentrant": quantized if language else None,
        "max_length": _LENGTH if language else own.get("max_seq_length"),
        "max_target_length": own.get("max_target_length"),
        "max_prompt_length": own.get("max_prompt_length"),
        "lora_r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "lora_targets": "all-linear",
        "quant_type": "nf4",
        "double_quant": False,
    }
