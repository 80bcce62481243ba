"""Arguments of `transformers.Trainer` under the names that tools around it keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import POSITIVE, TEXT, Unsaid
from ..bindings.rows import NEVER, Assumed, Default, Fixed, Key

if TYPE_CHECKING:
    from typing import Any

    from ..bindings.rows import Row

_LATER = "filled in when the job starts"


def model(*keys: str) -> Key:
    """The model's id or path."""
    blank = Assumed(None, f"{{key}} is {{value}}, which is {_LATER}")
    return Key("model", keys, TEXT, Assumed(None, "no key names the model"), back=NEVER, blank=blank)


BATCH = (
    Key(
        "micro_batch_size", ("per_device_train_batch_size", "per_gpu_train_batch_size"), POSITIVE, 8,
        blank=Assumed(None, _LATER),
    ),
    Key(
        "gradient_accumulation_steps", "gradient_accumulation_steps", POSITIVE, 1,
        blank=Assumed(1, f"{_LATER}; the default stands in"),
    ),
)  # fmt: skip
"""Micro batch size 8 and accumulation 1, when absent."""


def optimizer(key: str, usual: Any) -> tuple[Row, ...]:
    """`optim` under a tool's name of it."""

    def by_layer(name: str, _job: Any) -> Any:
        return True if name.endswith("_layerwise") else Unsaid.OTHER

    return (
        Key("optimizer.name", key, TEXT, usual),
        Key(
            "optimizer.in_backward", key, TEXT, to=by_layer, back=NEVER,
            note="layer-wise update frees each gradient at once",
        ),
        Fixed("optimizer.embeddings_32bit", Default(True, "the Trainer's override for nn.Embedding")),
    )  # fmt: skip
