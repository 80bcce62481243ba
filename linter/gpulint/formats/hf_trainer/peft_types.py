"""Adapters of types other than LoRA in the arguments of tools that pass them on to PEFT.

A type that no estimate knows keeps its name, so that what is said of the file names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.adapter_types import LOW_RANK, OPTIONS, kind_of
from ..core.bindings.kinds import ANYTHING, FLAG, INTEGER, NUMBER, TEXT, Kind, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, Key
from ..core.model_facts import find_model

if TYPE_CHECKING:
    from ..core.arguments import Given


class Tuner(NamedTuple):
    """What a tool passes to PEFT for a type: fields of the adapter, each with the tool's key and default."""

    fields: tuple[tuple[str, str, Any], ...] = ()
    dropout: str | None = None


SWIFT: dict[str, Tuner] = {
    "adalora": Tuner((("r", "adalora_init_r", 12),), "lora_dropout"),
    "boft": Tuner(
        (
            ("options.boft_block_size", "boft_block_size", 4),
            ("options.boft_block_num", "boft_block_num", 0),
            ("options.boft_n_butterfly_factor", "boft_n_butterfly_factor", 1),
        )
    ),
    "bone": Tuner((("r", "reft_rank", 4),)),
    "fourierft": Tuner((("options.n_frequency", "fourier_n_frequency", 2000),)),
    "vera": Tuner((("r", "vera_rank", 256),), "vera_dropout"),
}
"""ms-swift 4.6 (pipelines/train/tuner.py `prepare_adapter`, arguments/tuner_args.py): LLaMA Pro, ReFT, LongLoRA and
its own adapter are not PEFT's."""

FACTORY = Tuner((("r", "oft_rank", 0), ("options.oft_block_size", "oft_block_size", 32)), "module_dropout")
"""LLaMA-Factory's OFT (model/adapter.py, hparams/finetuning_args.py)."""


def set_tuner(reader: Reader, given: Given, tuner: Tuner) -> None:
    """An adapter of the type that `given` names, as the tool passes it on."""
    reader.set("adapter.type", given)
    said = Reader.over(reader, reader.document, reader.keys, reader.upstream)
    said.bind(Key(f"adapter.{field}", key, INTEGER, default) for field, key, default in tuner.fields)
    if tuner.dropout != "lora_dropout":
        said.bind((Key("adapter.dropout", tuner.dropout or "", NUMBER, 0.0),))


def set_named_type(reader: Reader, given: Given) -> None:
    """PEFT's `peft_type` with the keys of its config beside it."""
    reader.set("adapter.type", given, str(given.value).lower())
    adapter = reader.job.adapter
    assert adapter is not None
    said = Reader.over(reader, reader.document, reader.keys, reader.upstream)
    for name, default in OPTIONS.get(kind_of(adapter), {}).items():
        path = "adapter.r" if name == "r" else f"adapter.options.{name}"
        key = "init_r" if name == "r" and kind_of(adapter) == "adalora" else name
        said.bind((Key(path, key, _kind(default), default if name == "r" else LEAVE),))


def _kind(default: Any) -> Kind:
    """What PEFT's config takes for a key, by its default; what is of another kind is left to that."""
    if isinstance(default, bool):
        return _SWITCH
    return INTEGER if isinstance(default, int) else NUMBER if isinstance(default, float) else ANYTHING


def _flag_or_word(value: Any) -> Any:
    flag = FLAG.read(value)
    return TEXT.read(value) if flag is Unsaid.WRONG else flag


_SWITCH = Kind("true, false or a word", _flag_or_word)


def is_pair(word: str) -> bool:
    """Whether a word names LoRA or what has its shapes."""
    return word.lower().replace("-", "").replace("_", "") in LOW_RANK


def set_vera_targets(reader: Reader, given: Given) -> None:
    """ms-swift gives VeRA the modules of the shape that the first target with a `v` in its name has, of all linear
    ones (`get_vera_target_modules`).
    """
    job = reader.job
    model = find_model(job.model, reader.document.path, reader.project.root)
    if model is None or job.adapter is None or job.adapter.targets != "all-linear":
        return
    linear = [tensor for tensor in model.tensors if tensor.linear and tensor.role != "head"]
    shape = next((tensor.shape for tensor in linear if "v" in tensor.leaf), None)
    names = list(dict.fromkeys(tensor.leaf for tensor in linear if tensor.shape == shape))
    if names:
        reader.set("adapter.targets", given, names, "VeRA: modules of one shape")
