"""Which packages take part in a job, at which release, and how that release is known.

A package takes part because the job says so (`framework`, `inference.engine`, `parallelism`, `adapter`, `weights`). A
release that is pinned says which release runs where the package does, and never that it does. Kernels are the
exception: Transformers takes those of `KERNELS` wherever they can be imported, so one that is stated is one that runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from . import axolotl, litgpt, megatron, nemo_automodel, openrlhf, prime_rl, torchtitan, torchtune, unsloth
from .behaviour import BehaviourByType, is_release

if TYPE_CHECKING:
    from ..job.job import Job
    from .behaviour import Behaviour

Known = Literal["stated", "pinned", "newest"]

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

AROUND = {
    "axolotl": axolotl.NAME,
    "nemo-automodel": nemo_automodel.NAME,
    "prime-rl": prime_rl.NAME,
    "unsloth": unsloth.NAME,
}
"""Frameworks around Transformers' models: with a Trainer, kernels, a loader or some models of their own."""

FRAMEWORKS = {**NATIVE, **AROUND}

KERNELS = ("flash-linear-attention", "mamba-ssm", "flashinfer-python", "xielu")
"""Packages that run wherever they are installed."""


class Release(NamedTuple):
    """A package's release in a job.

    version  None where nobody states it: the newest
    known    `stated` by a file, a launcher or the settings; `pinned` by the tool that runs the job; or the `newest`
    """

    package: str
    version: str | None
    known: Known


class Stack:
    """The packages that take part in a job."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def framework(self) -> str | None:
        """The package whose model code, training loop or kernels run in the place of Transformers' or beside them."""
        return FRAMEWORKS.get(self.job.framework or "")

    @property
    def native(self) -> bool:
        """Whether model code or training loop are a framework's own, and not Transformers'."""
        return self.job.framework in NATIVE

    def release(self, package: str) -> Release:
        """The release of a package that a job runs with, whether it takes part or not."""
        job = self.job
        version = job.versions.get(package)
        if job.inference is not None and job.inference.engine == package:
            version = job.inference.version or version
        origin = job.origins.get(f"versions.{package}")
        if not is_release(version):
            return Release(package, version, "newest")
        return Release(package, version, "pinned" if origin is not None and origin.kind == "default" else "stated")

    def runs(self, package: str) -> bool:
        """Whether a package takes part."""
        job = self.job
        if package in KERNELS:
            return package in job.versions
        if package in FRAMEWORKS.values():
            return package == self.framework
        if package in _ENGINES:
            return job.inference is not None and job.inference.engine == package
        return True

    def does(self, row: Behaviour | BehaviourByType, type_: str = "") -> bool:
        """Whether the row's package takes part and does that in its release; `type_` where it goes by types."""
        if not self.runs(row.package):
            return False
        version = self.release(row.package).version
        return row.at(version, type_) if isinstance(row, BehaviourByType) else row.at(version)


_ENGINES = ("vllm", "sglang")
