"""LoRA in fused autograd functions: axolotl's `lora_*_kernel`, which it turns on by itself for supervised LoRA runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import axolotl
from .config import NAME

if TYPE_CHECKING:
    from ...job.job import Job
    from .config import AxolotlConfig

KERNELS = {"lora_qkv_kernel": "qkv", "lora_o_kernel": "o", "lora_mlp_kernel": "mlp"}
OTHERS = ("lora_embedding_kernel",)
"""Keys that say nothing of a layer's projections, but that the user has chosen kernels."""


def set_lora_kernels(config: AxolotlConfig) -> None:
    """`adapter.kernels`: what the keys name, else all three where nothing is in the way.

    In the way are `rl`, LoRA over 8 bits, `trust_remote_code`, `nvfp4_merge_aware`, FSDP1 and any of the keys, before
    0.16 dropout, whoever asks.
    """
    keys, builder, job = config.keys, config.builder, config.builder.job
    release = job.versions.get("axolotl", "")
    if job.adapter is None or job.adapter.type != "lora":
        return
    stated = [(key, flag) for key in (*KERNELS, *OTHERS) if (flag := keys.flag(key))]
    chosen = [(KERNELS[key], flag) for key, flag in stated if key in KERNELS and flag.value]
    if job.adapter.dropout and not axolotl.KERNELS_WITH_DROPOUT.at(release):
        builder.default("adapter.kernels", [])
    elif chosen:
        config.put("adapter.kernels", chosen[0][1], [part for part, _ in chosen])
    elif stated or not _by_itself(config, job):
        builder.default("adapter.kernels", [])
    else:
        builder.default("adapter.kernels", list(KERNELS.values()), f"{NAME} {release} turns its LoRA kernels on")


def _by_itself(config: AxolotlConfig, job: Job) -> bool:
    keys, release = config.keys, job.versions.get("axolotl", "")
    method = job.weights.quantization.method if job.weights.quantization else ""
    names = ["rl", "nvfp4_merge_aware"]
    if axolotl.OFF_UNDER_REMOTE_CODE.at(release):
        names.append("trust_remote_code")
    in_the_way = any(given is not None and given.value for given in map(keys.raw, names))
    fsdp = job.parallelism.fsdp
    if (
        in_the_way
        or method == "bnb-int8"
        or (fsdp is not None and fsdp.version == 1)
        or not axolotl.LORA_KERNELS.at(release)
    ):
        return False
    return keys.number("lora_dropout") is not None or not axolotl.WANTS_STATED_DROPOUT.at(release)
