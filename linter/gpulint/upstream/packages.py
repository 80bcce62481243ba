"""The packages whose releases decide about a job, by their names in `versions`."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..source.schema import did_you_mean
from .behaviour import older

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

DESCRIBED = {
    "accelerate": ("1.15.0",),
    "axolotl": ("0.19.0",),
    "deepspeed": ("0.19.6", "0.19.7", "0.19.8"),
    "llamafactory": ("0.8.3", "0.9.1", "0.9.3", "0.9.5"),
    "lmdeploy": ("0.14.0", "0.18.0"),
    "sglang": (
        "0.4.6.post5", "0.4.9", "0.5.4", "0.5.6", "0.5.8", "0.5.10", "0.5.12", "0.5.14", "0.5.17", "0.5.19", "0.5.20",
        "0.5.21", "0.5.22", "0.5.23",
    ),
    "transformers": ("4.40.2", "4.57.3", "5.23.0"),
    "trl": ("0.11.4", "0.16.1", "0.24.0", "1.16.0"),
    "verl": ("0.10.0",),
    "vllm": (
        "0.6.6", "0.8.5", "0.11.0", "0.15.1", "0.17.1", "0.25.1", "0.27.1", "0.29.0", "0.33.0",
    ),
}  # fmt: skip
"""Releases of which every key was read, in order: keys that are gone in the next are gone somewhere between."""

GONE = {
    ("transformers", "evaluation_strategy"): "4.51.0",
    ("vllm", "enable_reasoning"): "0.10.0",
}
"""The first release without a key, where it was looked up: training_args.py of transformers 4.50.3 has the field still
and that of 4.51.0 has not; vllm 0.9.2 warns of the option, and 0.10.0 stops at it (issue 18538)."""


def known_package(name: str) -> str:
    """The name in `versions` of a package that somebody states. Raises ValueError for one that decides nothing."""
    found = package_of(name)
    if found is None:
        hint = did_you_mean(name.strip(), sorted((*PACKAGES, *ALIASES)))
        raise ValueError(f"no job is made of a package {name.strip()}{hint}")
    return found


def gone(package: str, key: str, last: str, release: str) -> bool:
    """Whether a release no longer has a key that `last` was the last described one to have.

    Releases between that and the next described one may have it still, unless `GONE` knows; so may the development
    of the first without it, `0.10.0.dev`.
    """
    described = DESCRIBED.get(package, ())
    following = next((found for found in described if older(last, found)), None)
    first = GONE.get((package, key.replace("-", "_"))) or following
    after = first is None or (older(first, release) if ".dev" in release else not older(release, first))
    return older(last, release) and after


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

    The newest of those described that the bounds allow, else the greatest that they name and allow.
    """
    described = DESCRIBED.get(package, ())
    if not any(bound.operator in ("<", "<=", "==") for bound in bounds):
        return ""
    if described and all(bound.allows(described[-1]) for bound in bounds):
        return ""
    named = [bound.release for bound in bounds if bound.operator in (">=", "<=", "==")]
    for release in (*reversed(described), *reversed(named)):
        if all(bound.allows(release) for bound in bounds):
            return release
    return ""
