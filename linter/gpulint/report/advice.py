"""A suggestion in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..units import bytes_text

if TYPE_CHECKING:
    from ..finding import Suggestion


def advice(suggestion: Suggestion) -> str:
    """Its words, and the memory after it where that was estimated."""
    after = effect(suggestion)
    return f"{suggestion.text} -> {after}" if after else suggestion.text


def effect(suggestion: Suggestion) -> str:
    """The memory after it; nothing where it changes none that was estimated."""
    return f"{bytes_text(suggestion.per_gpu)} per GPU" if suggestion.per_gpu is not None else ""
