"""What tools with a trainer of their own have in common: plain PyTorch where no key says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bindings.kinds import POSITIVE, Kind
from ..bindings.rows import LEAVE, Assumed, Fixed, Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..bindings.reader import Reader
    from ..bindings.rows import Row, Step

_DEFAULTS: dict[str, Any] = {
    "weights.quantization": None, "precision.autocast": None, "precision.master_weights": False, "reentrant": False,
    "padded": False, "packing": False, "liger_kernels": False, "compile": False, "rl.reference_model": False,
    "evaluation.micro_batch_size": None, "parallelism.zero": None, "parallelism.fsdp": None, "parallelism.tensor": 1,
    "loss.kernel": "torch", "activation_checkpointing": "none", "gradient_accumulation_steps": 1, "adapter": None,
    "method": "full", "attention": "sdpa", "optimizer.name": "adamw_torch",
}  # fmt: skip

PLAIN_TRAINING: tuple[Row, ...] = tuple(Fixed(field, value) for field, value in _DEFAULTS.items())
"""Fields of a training job that a framework may have no key for, and what it then does: the last rows of a table."""


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


def own_code(tool: str, upstream: str, framework: str | None) -> Step:
    """The versions of a tool that runs model code of its own, `framework` of the estimator; None is Transformers'."""

    def step(reader: Reader) -> None:
        version = upstream.rpartition(" ")[2]
        stated = {name: release for name, release in reader.project.versions.items() if release}
        described = {framework or tool: version} if version[:1].isdigit() else {}
        reader.default("versions", {**described, **stated}, f"what {upstream} runs on")
        if framework is not None:
            reader.derived("framework", framework, f"{tool} runs model code of its own")

    return step
