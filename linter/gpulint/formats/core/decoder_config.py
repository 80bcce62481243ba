"""Models that a config gives by their dimensions, as a config.json of Transformers."""

from __future__ import annotations

from typing import Any


def decoder(
    name: str, kind: str, *, hidden: int, layers: int, heads: int, vocabulary: int, intermediate: int,
    kv_heads: int | None = None, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A config.json of a Transformers architecture with these dimensions; `more` are further fields of it."""
    return {
        "model_type": kind,
        "_name_or_path": name,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads,
        "vocab_size": vocabulary,
        **more,
    }


def multiple(number: float, step: int) -> int:
    """The number rounded up to a multiple."""
    return -(-int(number) // step) * step
