"""The packages whose releases decide about a job, by their names in `versions`."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..source.schema import did_you_mean
from .behaviour import older
from .key_releases.table import releases

PACKAGES = frozenset(
    """
    accelerate ai2-olmo areal autotrain-advanced axolotl bitsandbytes deepspeed flash-attn flash-linear-attention
    flashinfer-python h2o-llmstudio liger-kernel litgpt llama-cpp-python llamafactory llm-foundry lmdeploy mamba-ssm
    mcore-bridge megatron-bridge megatron-core mistral-finetune ms-swift nanotron nemo-automodel nemo-rl nemo-toolkit
    openrlhf optimum oumi peft prime-rl sglang skyrl slime tgi torch torchao torchtitan torchtune transformer-engine
    transformers trl trlx trtllm unsloth verl vllm xformers xielu
    """.split()  # noqa: SIM905
)
"""Those that a row of `upstream`, a schema or a format's own defaults names, and those that they run on."""

ALIASES = {
    "autotrain": "autotrain-advanced",
    "gpt-neox": "megatron-core",
    "llama-factory": "llamafactory",
    "llmtuner": "llamafactory",
    "llmfoundry": "llm-foundry",
    "nemo": "nemo-toolkit",
    "pytorch": "torch",
    "swift": "ms-swift",
    "tensorrt-llm": "trtllm",
    "text-generation-inference": "tgi",
    "text-generation-server": "tgi",
}
"""Other names of them: on PyPI, in conda's channels, of former releases."""


def known_package(name: str) -> str:
    """The name in `versions` of a package that somebody states. Raises ValueError for one that decides nothing."""
    found = package_of(name)
    if found is None:
        hint = did_you_mean(name.strip(), sorted((*PACKAGES, *ALIASES)))
        raise ValueError(f"no job is made of a package {name.strip()}{hint}")
    return found


def package_of(name: str) -> str | None:
    """The name in `versions` of a package, however its file spells it (PEP 503); None for one that decides nothing."""
    found = re.sub(r"[-_.]+", "-", name.strip()).lower()
    found = ALIASES.get(found, found)
    return found if found in PACKAGES else None


class Bound(NamedTuple):
    """A comparison with a release: `==`, `>=`, `>`, `<=`, `<` or `!=`."""

    operator: str
    release: str

    def allows(self, release: str) -> bool:
        """Whether a release passes."""
        below, above = older(release, self.release), older(self.release, release)
        passes = {
            "==": not below and not above,
            "!=": below or above,
            ">=": not below,
            ">": above,
            "<": below,
            "<=": not above,
        }
        return passes[self.operator]


def representative(bounds: tuple[Bound, ...], package: str) -> str:
    """The release that stands for a range: "" where the newest is in it, for then it says nothing more.

    The newest that was read and that the bounds allow, else the greatest that they name and allow.
    """
    if not any(bound.operator in ("<", "<=", "==") for bound in bounds):
        return ""
    read = releases(package)
    if read and all(bound.allows(read[-1]) for bound in bounds):
        return ""
    named = [bound.release for bound in bounds if bound.operator in (">=", "<=", "==")]
    for release in (*reversed(read), *reversed(named)):
        if all(bound.allows(release) for bound in bounds):
            return release
    return ""
