"""Adapters of types other than LoRA in the arguments of tools that pass them on to PEFT.

A type that no estimate knows keeps its name, so that what is said of the file names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.adapter_types import LOW_RANK, OPTIONS, kind_of
from ..core.model_facts import find_model

if TYPE_CHECKING:
    from ..core.arguments import Given
    from .training_arguments import Run


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


def set_tuner(run: Run, given: Given, tuner: Tuner) -> None:
    """An adapter of the type that `given` names, as the tool passes it on."""
    run.put("adapter.type", given, given.value)
    for field, key, default in tuner.fields:
        stated = run.arguments.integer(key)
        if stated:
            run.put(f"adapter.{field}", stated)
        else:
            run.builder.default(f"adapter.{field}", default)
    dropout = run.arguments.number(tuner.dropout) if tuner.dropout else None
    if dropout:
        run.put("adapter.dropout", dropout)
    elif tuner.dropout != "lora_dropout":
        run.builder.default("adapter.dropout", 0.0)


def set_named_type(run: Run, given: Given) -> None:
    """PEFT's `peft_type` with the keys of its config beside it."""
    run.put("adapter.type", given, str(given.value).lower())
    adapter = run.builder.job.adapter
    assert adapter is not None
    for name, default in OPTIONS.get(kind_of(adapter), {}).items():
        path = "adapter.r" if name == "r" else f"adapter.options.{name}"
        stated = _stated(run, "init_r" if name == "r" and kind_of(adapter) == "adalora" else name, default)
        if stated:
            run.put(path, stated, stated.value)
        elif name == "r":
            run.builder.default(path, default)


def _stated(run: Run, name: str, default: Any) -> Given | None:
    """A key of PEFT's config, of the type that its default has; what is of another is left to the default."""
    if isinstance(default, bool):
        return run.arguments.flag(name) or run.arguments.text(name)
    if isinstance(default, int):
        return run.arguments.integer(name)
    if isinstance(default, float):
        return run.arguments.number(name)
    given = run.arguments.raw(name)
    return given if given and given.value is not None else None


def is_pair(word: str) -> bool:
    """Whether a word names LoRA or what has its shapes."""
    return word.lower().replace("-", "").replace("_", "") in LOW_RANK


def set_vera_targets(run: Run, given: Given) -> None:
    """ms-swift gives VeRA the modules of the shape that the first target with a `v` in its name has, of all linear
    ones (`get_vera_target_modules`).
    """
    job = run.builder.job
    model = find_model(job.model, run.builder.document.path, run.project.root)
    if model is None or job.adapter is None or job.adapter.targets != "all-linear":
        return
    linear = [tensor for tensor in model.tensors if tensor.linear and tensor.role != "head"]
    shape = next((tensor.shape for tensor in linear if "v" in tensor.leaf), None)
    names = list(dict.fromkeys(tensor.leaf for tensor in linear if tensor.shape == shape))
    if names:
        run.put("adapter.targets", given, names, "VeRA: modules of one shape")
