"""bitsandbytes' StableEmbedding, which LitGPT puts in the place of the embedding once a quantised model is set up.

The new table wants a gradient and is in no optimizer, so that nothing empties its gradient either; the old table keeps
its name in `main`. Together two tables more than the model has: 2 x vocabulary x hidden x bytes of the weights.
Source: litgpt/finetune/lora.py, adapter.py, adapter_v2.py since 0.5.0 (#1770); bitsandbytes/nn/modules.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.litgpt import STABLE_EMBEDDING
from ....upstream.stack import Stack
from ..parameter import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....job.job import Job, Quantization
    from ..parameter import Parameter

NORM = "stable_norm"
"""The layer normalisation behind it, in the weights' dtype."""

SPARE = ("replaced", "gradient")
"""Last names of the two tables that stay beside it, the second from the first backward pass on."""


def label(item: Parameter) -> str:
    """What a buffer is that no model has; "" for all others."""
    spare = item.role == "embedding" and item.name.rpartition(".")[2] in SPARE
    return "the embedding that StableEmbedding replaced, and the gradient of the new one" if spare else ""


def unmade(items: Iterable[Parameter]) -> int:
    """Bytes of `SPARE` that are not there while the model is loaded: the gradient."""
    return sum(item.allocated for item in items if label(item) and item.name.endswith(f".{SPARE[1]}"))


def stabilises(job: Job, quantization: Quantization | None) -> bool:
    """Whether a job's embedding is replaced. A job that states no release of LitGPT runs the newest."""
    if job.kind != "training" or quantization is None:
        return False
    return quantization.method.startswith("bnb-") and Stack(job).does(STABLE_EMBEDDING)


def stabilised(items: Iterable[Parameter]) -> list[Parameter]:
    """The base parameters with the new embedding, and beside it the old one and the gradient."""
    found: list[Parameter] = []
    for item in items:
        if item.role != "embedding" or item.part != "base":
            found.append(item)
            continue
        module = item.name.removesuffix(".weight")
        norm = item._replace(
            role="norm", shape=item.shape[1:], pieces=pieces_of(item.shape[1:], item.dtype), swept=True
        )
        found += [
            item._replace(swept=True),
            norm._replace(name=f"{module}.{NORM}.weight"),
            norm._replace(name=f"{module}.{NORM}.bias"),
            *(item._replace(name=f"{module}.{name}", part="buffer") for name in SPARE),
        ]
    return found
