"""A training loop of a tool's own: the versions that run it, and what it does where it has no key for a field."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.rows import Derived, Fixed

if TYPE_CHECKING:
    from typing import Any

    from ..bindings.reader import Reader
    from ..bindings.rows import Row, Step


def runs_on(framework: str | None = None) -> tuple[Row, ...]:
    """`versions`: the described one and those that the run states; `framework`: the model code, None Transformers'."""

    def set_versions(reader: Reader) -> None:
        tool, _, version = reader.upstream.rpartition(" ")
        own = {framework or tool: version} if version[:1].isdigit() else {}
        stated = {name: release for name, release in reader.project.versions.items() if release}
        reader.default("versions", {**own, **stated}, f"what {reader.upstream} runs on")

    def set_framework(reader: Reader) -> None:
        tool = reader.upstream.rpartition(" ")[0]
        reader.derived("framework", framework, f"{tool} runs model code of its own")

    steps: tuple[Step, ...] = (set_versions, set_framework) if framework else (set_versions,)
    return steps


def pretrains(tool: str, run: str) -> tuple[Row, ...]:
    """A run, `a run of train.py`, whose rows are cut out of one stream of tokens."""
    return (
        Fixed("kind", Derived("training", run)),
        Fixed("objective", Derived("pretrain", f"{tool} pretrains")),
        Fixed("packing", Derived(True, "rows are cut out of a stream of tokens", "objective")),
    )


_USUAL: dict[str, Any] = {
    "weights.quantization": None, "precision.autocast": None, "precision.master_weights": False, "reentrant": False,
    "padded": False, "packing": False, "liger_kernels": False, "compile": False, "rl.reference_model": False,
    "evaluation.micro_batch_size": None, "parallelism.zero": None, "parallelism.fsdp": None, "parallelism.tensor": 1,
    "loss.kernel": "torch", "activation_checkpointing": "none", "gradient_accumulation_steps": 1, "adapter": None,
    "method": "full", "attention": "sdpa", "optimizer.name": "adamw_torch",
}  # fmt: skip


USUAL = tuple(Fixed(field, value) for field, value in _USUAL.items())
"""The last rows of a table: what a loop does where neither a key nor the tool says otherwise."""
