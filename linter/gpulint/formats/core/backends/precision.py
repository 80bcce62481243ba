"""One word that says the dtype of the weights and that of autocast: Composer's and Lightning Fabric's `precision`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import TEXT
from ..bindings.rows import LEAVE, Key

if TYPE_CHECKING:
    from typing import Any

    from ..bindings.rows import Row, Source
    from ..bindings.spelling import Precisions


def precision(key: str, words: Precisions, weights: Source, autocast: Source, *, other: str = "") -> tuple[Row, ...]:
    """`weights.dtype` and `precision.autocast`, each with what holds without the key; `other` is how a word that is
    not known is read, "" as none.

    A change of the weights' dtype ends autocast, and one of autocast has float32 weights under it.
    """
    pair: Any = words[other] if other else (LEAVE, LEAVE)
    last_first = [(word, *said) for word, said in reversed(list(words.items()))]
    pure = {dtype: word for word, dtype, cast in last_first if cast is None}
    mixed = {cast: word for word, dtype, cast in last_first if dtype == "float32"}
    return (
        Key("weights.dtype", key, TEXT, weights, {word: said[0] for word, said in words.items()}, pure, other=pair[0]),
        Key(
            "precision.autocast", key, TEXT, autocast, {word: said[1] for word, said in words.items()}, mixed,
            other=pair[1],
        ),
    )  # fmt: skip
