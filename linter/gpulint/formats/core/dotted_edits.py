"""Job changes as dotted keys, for formats in which one key says one field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .key_changes import ZERO, edits_of, spoken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...source.edit.replacement import Edit
    from .format import Describe, Edits, Reading
    from .key_changes import Keys

ACCUMULATION = "gradient_accumulation_steps"


def _as_is(_reading: Reading, key: str) -> str:
    return key


class Vocabulary(NamedTuple):
    """How a format says changes.

    keys     Job field -> the dotted key that holds its value as it is
    says     Job field -> a function that gives the keys, None where the format cannot say the value
    total    the key of the rows of one step of all ranks, where accumulation is what that leaves over
    spelled  a key as the file spells it, or below the section that holds it
    ignored  Job fields that follow from others of a change
    zero     the keys for all that a change says of ZeRO together
    """

    keys: dict[str, str]
    says: dict[str, Callable[[Reading, Any], Keys | None]] = {}  # noqa: RUF012  (never changed)
    total: str = ""
    spelled: Callable[[Reading, str], str] = _as_is
    ignored: frozenset[str] = frozenset()
    zero: Callable[[Reading, dict[str, Any]], Keys | None] | None = None


def wanted_keys(vocabulary: Vocabulary, reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys to write for a change; None when a part of it is not the format's to say."""
    wanted: Keys = {}
    zero = {path: value for path, value in changes.items() if path.startswith(ZERO)} if vocabulary.zero else {}
    if vocabulary.zero and zero:
        said = vocabulary.zero(reading, zero)
        if said is None:
            return None
        wanted |= said
    for path, value in changes.items():
        if path in zero:
            continue
        if path in vocabulary.says:
            said = vocabulary.says[path](reading, value)
            if said is None:
                return None
            wanted |= said
        elif path in vocabulary.keys:
            wanted[vocabulary.keys[path]] = value
        elif path == ACCUMULATION and vocabulary.total:
            wanted |= _whole_batch(vocabulary, reading, changes)
        elif path not in vocabulary.ignored:
            return None
    root = reading.config.root
    spelled = {vocabulary.spelled(reading, key): value for key, value in wanted.items()}
    return {key: value for key, value in spelled.items() if value is not None or root.find(key) is not None}


def _whole_batch(vocabulary: Vocabulary, reading: Reading, changes: dict[str, Any]) -> Keys:
    """Nothing where the file states the rows of a step and they stay the same, else those rows."""
    job, plan = reading.job, reading.job.parallelism
    rows = changes[ACCUMULATION] * changes.get("micro_batch_size", job.micro_batch_size or 1)
    stated = reading.config.root.find(vocabulary.spelled(reading, vocabulary.total))
    same = rows == job.gradient_accumulation_steps * (job.micro_batch_size or 1)
    if same and stated is not None and stated.value.value is not None:
        return {}
    ranks = max(1, (job.hardware.gpus or 1) // (plan.tensor * plan.pipeline * plan.context))
    return {vocabulary.total: rows * ranks}


def said_in(vocabulary: Vocabulary) -> tuple[Describe, Edits]:
    """`describe` and `edits` of a format with this vocabulary."""

    def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
        return spoken(wanted_keys(vocabulary, reading, changes))

    def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
        return edits_of(reading.config, wanted_keys(vocabulary, reading, changes))

    return describe, edits
