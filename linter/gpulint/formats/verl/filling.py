"""Filling a Job from a verl config, over the values that verl itself ships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.sections import Filling

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..core.format import JobBuilder

ACTOR = "actor_rollout_ref.actor"
MODEL = "actor_rollout_ref.model"
ROLLOUT = "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"


class VerlFilling(Filling):
    """Values of the shipped config (`base`) are verl's defaults, not what a file says."""

    __slots__ = ("base",)

    def __init__(self, builder: JobBuilder, base: str) -> None:
        super().__init__(builder)
        self.base = base

    def is_stated(self, given: Given | None) -> bool:
        """Whether the user's file says it."""
        return given is not None and given.entry.key.path != self.base

    def put(self, path: str, given: Given, value: Any = None, note: str = "") -> None:
        """Set a field from the file, or as a default where the value is that of verl's own config."""
        if self.is_stated(given):
            super().put(path, given, value, note)
        else:
            self.builder.default(path, given.value if value is None else value, note)

    def nothing(self, path: str, given: Given, note: str) -> None:
        """Set a field to None because of what the file says."""
        if self.is_stated(given):
            super().nothing(path, given, note)
        else:
            self.builder.default(path, None, note)
