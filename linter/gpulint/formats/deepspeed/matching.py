"""What the Trainer compares between a DeepSpeed config and its own arguments, whether those are stated or not.

`HfTrainerDeepSpeedConfig.fill_match` (Transformers 5.23.0, `integrations/deepspeed.py`) takes every value that is not
"auto" with `!=`: a number in quotes is another value than the number, and an argument that nobody states counts with
its default. `trainer_config_finalize` stops at the first list of such pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.deepspeed import AUTO
from ..core.coercion import as_integer, as_number
from ..core.placeholders import is_blank
from .values import Argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from .values import ConfigReader


DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-5, "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0, "warmup_steps": 0, "max_steps": -1,
}  # fmt: skip
"""`TrainingArguments`, the same from 4.0 on."""

COMPARED = (
    ("optimizer.params.lr", ("learning_rate",)),
    ("optimizer.params.betas", ("adam_beta1", "adam_beta2")),
    ("optimizer.params.eps", ("adam_epsilon",)),
    ("optimizer.params.weight_decay", ("weight_decay",)),
    ("scheduler.params.warmup_max_lr", ("learning_rate",)),
    ("scheduler.params.warmup_num_steps", ("warmup_steps",)),
    ("scheduler.params.total_num_steps", ("max_steps",)),
    ("gradient_clipping", ("max_grad_norm",)),
)
"""Keys of DeepSpeed and the arguments that they are held against; the batch sizes are in `config._batch`."""

_COUNTS = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")


def arguments(reader: Reader, defaults: Mapping[str, Any] | None, basis: str = "default") -> dict[str, Argument]:
    """The compared arguments as the file states them, else as `defaults` have them; None in there is not known."""
    found = {}
    for name in DEFAULTS:
        given = reader.keys.raw(name)
        number = as_number(given.value) if given is not None and not isinstance(given.value, bool) else None
        if number is not None:
            found[name] = Argument(number, "stated")
        elif given is None and defaults is not None and defaults.get(name) is not None:
            found[name] = Argument(defaults[name], basis)
    if "warmup_steps" in found and reader.keys.raw("warmup_ratio") is not None:
        del found["warmup_steps"]
    return found


def compare(reader: ConfigReader) -> None:
    """Report each value that stops the Trainer."""
    for key, names in COMPARED:
        given = reader.keys.raw(key)
        sides = [reader.values.arguments.get(name) for name in names]
        if given is None or given.value is None or given.value == AUTO or is_blank(given.value):
            continue
        known = [side for side in sides if side is not None]
        if not _is_number(given.value):
            _report_text(reader, given, ", ".join(names))
        elif len(known) == len(sides):
            wanted = _wanted(names, [side.value for side in known])
            if wanted and given.value not in wanted:
                basis = next((side.basis for side in known if side.basis != "stated"), "stated")
                _report(reader, given, ", ".join(names), wanted[0], basis)


def compare_text(reader: ConfigReader) -> None:
    """A batch size in quotes, which no number equals; `config._batch` holds the numbers against each other."""
    for key in _COUNTS:
        given = reader.keys.raw(key)
        if given is not None and isinstance(given.value, str) and as_integer(given.value) is not None:
            _report_text(reader, given, key)


def _wanted(names: tuple[str, ...], values: list[Any]) -> list[Any]:
    """The values that pass; none where the Trainer derives the number from the length of the data."""
    if names == ("adam_beta1", "adam_beta2"):
        return [values]
    value = values[0]
    if names == ("max_steps",):
        return [value] if value > 0 else []
    if names == ("warmup_steps",):  # a fraction is one of all steps; before 5.20 no warm-up was 0 steps, now it is 1
        return [] if 0 < value < 1 else [int(value)] if value else [0, 1]
    return [value]


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_number(item) for item in value)
    return isinstance(value, int | float)


def _report_text(reader: ConfigReader, given: Given, other: str) -> None:
    written = given.entry.value.raw or str(given.value)
    if as_number(given.value) is not None:
        note = "it is text, and text differs from every number; without the quotes it is compared as a number"
        reader.contradicts(given, written, f"{other} is a number", note)


def _report(reader: ConfigReader, given: Given, other: str, wanted: Any, basis: str) -> None:
    words = {"stated": "", "default": "its default", "assumed": "the Trainer's default"}[basis]
    said = f"{other}: {wanted:g}" if isinstance(wanted, float) else f"{other}: {wanted}"
    told = f"{said} ({words})" if words else said
    reader.contradicts(given, str(given.entry.value.raw or given.value), told, basis=basis)
