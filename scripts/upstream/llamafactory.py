"""The keys of LLaMA-Factory's YAML for training, inference, evaluation and export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arguments import enum_values, fields
from .hf_trainer import add
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

MODULES = ("model_args", "data_args", "finetuning_args", "generating_args", "training_args", "evaluation_args")


def llamafactory(released: Source, transformers: Source, newest: Source) -> Json:
    """The release's argument classes over those of the newest Transformers that it takes.

    Keys that only the newest commit has are known without a word: LLaMA-Factory is mostly run from its repository.
    """
    properties: dict[str, Json] = {}
    enums = enum_values(released, "extras/constants.py")
    for module in MODULES:
        for cls in released.classes(f"hparams/{module}.py").values():
            add(properties, fields(cls, enums))
    add(properties, fields(transformers.classes("training_args.py")["TrainingArguments"], {}))
    add(properties, fields(transformers.classes("training_args_seq2seq.py")["Seq2SeqTrainingArguments"], {}))
    for path in newest.below("hparams/"):
        for cls in newest.classes(path).values():
            for name in fields(cls, {}):
                properties.setdefault(name, {})
    return whole("LLaMA-Factory", properties, "refused")
