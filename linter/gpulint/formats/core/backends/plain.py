"""Rows that most tools have: whole numbers that may be filled in later, and the packages that a tool runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bindings.kinds import POSITIVE, Kind
from ..bindings.rows import LEAVE, Assumed, Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..bindings.reader import Reader
    from ..bindings.rows import Step


def size(field: str, keys: str | tuple[str, ...], default: Any = LEAVE, kind: Kind = POSITIVE) -> Key:
    """A whole number; nothing is assumed for one without a default, or whose blank decides memory by itself."""
    required = default is LEAVE or field in ("micro_batch_size", "sequence_length")
    told = Assumed(None if required else default, "{key} is filled in when the job starts")
    return Key(field, keys, kind, Assumed(None, "no key says it") if default is LEAVE else default, blank=told)


def packages(usual: Mapping[str, str], upstream: str) -> Step:
    """The versions of the packages that a tool runs on: those that it pins, unless the run states others."""

    def step(reader: Reader) -> None:
        reader.versions(usual, reader.project.versions, f"what {upstream} runs on")

    return step
