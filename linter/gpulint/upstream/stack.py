"""Which packages take part in a job, at which release, and how that release is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from . import axolotl, litgpt, megatron, nemo_automodel, olmo, torchtitan, torchtune, unsloth
from .behaviour import BehaviourByType, is_release
from .rl import openrlhf, prime_rl, verl
from .serving import sglang, vllm

if TYPE_CHECKING:
    from ..job.job import Job
    from .behaviour import Behaviour

QWEN = "qwen"
"""The first Qwen's finetune.py, with its modeling_qwen.py: code of no package."""

NATIVE = {
    "litgpt": litgpt.NAME,
    "megatron": megatron.NAME,
    "openrlhf": openrlhf.NAME,
    "qwen": QWEN,
    "torchtitan": torchtitan.NAME,
    "torchtune": torchtune.NAME,
}
"""Frameworks with model code or a training loop of their own, and the package that has it."""

AROUND = frozenset({axolotl.NAME, nemo_automodel.NAME, olmo.NAME, prime_rl.NAME, unsloth.NAME, verl.NAME})
"""Frameworks around Transformers' models, by their packages: a Trainer, kernels, a loader, some models of their own."""

KERNELS = frozenset({"flash-linear-attention", "mamba-ssm", "flashinfer-python", "xielu"})
"""Packages that others take wherever they can be imported."""

ENGINES = frozenset({vllm.NAME, sglang.NAME})

FRAMEWORKS = frozenset({*NATIVE.values(), *AROUND})


class Release(NamedTuple):
    """A package's release in a job.

    version  None where nobody states it
    known    `stated` by a file, a launcher or the settings; `pinned` by the tool that runs the job; else the `newest`
    """

    package: str
    version: str | None
    known: Literal["stated", "pinned", "newest"]


class Stack:
    """The packages that take part in a job.

    A job says so by `framework` and `inference.engine`. A release that is stated says which release runs where the
    package does, and never that it does; but for `KERNELS`, which are used wherever they are installed.
    """

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def framework(self) -> str | None:
        """The package whose code runs in the place of Transformers', or around it; None for Transformers alone."""
        name = self.job.framework or ""
        return NATIVE.get(name) or (name if name in AROUND else None)

    @property
    def native(self) -> bool:
        """Whether model code or training loop are a framework's own in the place of Transformers'."""
        return self.job.framework in NATIVE

    def release(self, package: str) -> Release:
        """The release that a package has where it takes part."""
        version, origin = self.version(package), self.job.origins.get(f"versions.{package}")
        if not is_release(version):
            return Release(package, version, "newest")
        return Release(package, version, "pinned" if origin is not None and origin.kind == "default" else "stated")

    def version(self, package: str) -> str | None:
        """The version of that release; None where nobody states it."""
        inference = self.job.inference
        if inference is not None and inference.engine == package and inference.version:
            return inference.version
        return self.job.versions.get(package)

    def runs(self, package: str) -> bool:
        """Whether a package takes part; libraries that every job of their kind has always do."""
        if package in FRAMEWORKS:
            return self.framework == package
        if package in KERNELS:
            return package in self.job.versions
        if package in ENGINES:
            return self.job.inference is not None and self.job.inference.engine == package
        return True

    def does(self, row: Behaviour | BehaviourByType, type_: str = "") -> bool:
        """Whether the row's package takes part and does that in its release; `type_` where it goes by types."""
        if not self.runs(row.package):
            return False
        version = self.version(row.package)
        return row.at(version, type_) if isinstance(row, BehaviourByType) else row.at(version)
