"""LoRA as trainers of reinforcement learning put it on the policy, by PEFT or by Megatron's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import NUMBER, POSITIVE, WORDS, Unsaid
from ..bindings.rows import LEAVE, Default, Derived, Fixed, Key, only
from .megatron import is_megatron

if TYPE_CHECKING:
    from typing import Any

    from ....job.job import Job
    from ..bindings.reader import Reader
    from ..bindings.rows import Row

    Names = str | tuple[str, ...]


def by_rank(rank: Names, note: str, *, usual: int = 32) -> Row:
    """`method`: LoRA where its rank is above zero; `usual` is the rank that a change to LoRA writes."""

    def written(method: str, job: Job) -> Any:
        if method == "lora":
            return job.adapter.r if job.adapter else usual
        return 0 if method == "full" else Unsaid.OTHER

    return Key("method", rank, POSITIVE, Default("full", note), lambda _rank, _job: "lora", written)


def lora(
    *, rank: Names, alpha: Names = "", dropout: Names = "", targets: Names = "", r: Any = LEAVE, scale: float = 16,
    cast: bool = True,
) -> tuple[Row, ...]:  # fmt: skip
    """The adapter where `method` is LoRA, else none.

    The arguments are the tool's keys, "" for what it has no key for; `r` and `scale` its defaults of rank and alpha.
    `cast`: its weights have the dtype of those it lies over, else the one that PEFT chooses. Megatron adapts all linear
    layers, and so does PEFT where no targets are named.
    """
    return (
        Fixed("adapter", Derived(None, "no adapter", "method"), when=lambda job: not _has_lora(job)),
        *only(
            _has_lora,
            Fixed("adapter.type", Derived("lora", "LoRA", "method")),
            Key("adapter.r", rank, POSITIVE, default=r),
            Key("adapter.alpha", alpha, NUMBER, default=scale) if alpha else Fixed("adapter.alpha", scale),
            Key("adapter.dropout", dropout, NUMBER, default=0.0) if dropout else Fixed("adapter.dropout", 0.0),
            *((Key("adapter.targets", targets, WORDS, to=_targets, back=lambda names, _: names),) if targets else ()),
            Fixed("adapter.targets", "all-linear"),
            Fixed("adapter.modules_to_save", []),
            Fixed("adapter.prepare_kbit", False),
            *((Fixed("adapter.dtype", _weights_dtype),) if cast else ()),
        ),
    )


TRAINABLE = (
    Fixed("trainable", Default(None, "all weights"), when=lambda job: job.method == "full"),
    Fixed("trainable", Derived(None, "the adapter alone", "method")),
)
"""What is trained, after `method`."""


def _weights_dtype(reader: Reader) -> Derived:
    return Derived(reader.job.weights.dtype, "the dtype of the weights", "weights.dtype")


def _has_lora(job: Job) -> bool:
    return job.method == "lora"


def _targets(names: list[str], job: Job) -> Any:
    return Unsaid.OTHER if names == ["all-linear"] or is_megatron(job) else names
