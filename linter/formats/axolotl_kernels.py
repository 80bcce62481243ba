"""LoRA in fused autograd functions: axolotl's `lora_*_kernel`, which it turns on by itself for supervised LoRA runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .releases import older

if TYPE_CHECKING:
    from ..job import Job
    from .axolotl_config import AxolotlConfig

KERNELS = {"lora_qkv_kernel": "qkv", "lora_o_kernel": "o", "lora_mlp_kernel": "mlp"}
OTHERS = ("lora_embedding_kernel",)
"""Keys that say nothing of a layer's projections, but that the user has chosen kernels."""

FIRST = "0.10"
"""The release that turns them on (`check_auto_enable_lora_kernels`)."""

WITH_DROPOUT = "0.16"
"""The release whose kernels take dropout (#3528); before, only a stated `lora_dropout: 0` turned them on."""


def set_lora_kernels(config: AxolotlConfig) -> None:
    """`adapter.kernels`: what the keys name, else all three where nothing is in the way.

    In the way are `rl`, LoRA over 8 bits, `trust_remote_code`, `nvfp4_merge_aware`, FSDP1 and any of the keys.
    """
    keys, builder, job = config.keys, config.builder, config.builder.job
    if job.adapter is None or job.adapter.type != "lora":
        return
    stated = [(key, flag) for key in (*KERNELS, *OTHERS) if (flag := keys.flag(key))]
    chosen = [(KERNELS[key], flag) for key, flag in stated if key in KERNELS and flag.value]
    if chosen:
        config.put("adapter.kernels", chosen[0][1], [part for part, _ in chosen])
    elif stated or not _by_itself(config, job):
        builder.default("adapter.kernels", [])
    else:
        builder.default("adapter.kernels", list(KERNELS.values()), f"{builder.upstream} turns its LoRA kernels on")


def _by_itself(config: AxolotlConfig, job: Job) -> bool:
    keys = config.keys
    method = job.weights.quantization.method if job.weights.quantization else ""
    blocking = (keys.raw(key) for key in ("rl", "trust_remote_code", "nvfp4_merge_aware"))
    in_the_way = any(given is not None and given.value for given in blocking)
    fsdp = job.parallelism.fsdp
    if in_the_way or method == "bnb-int8" or (fsdp is not None and fsdp.version == 1):
        return False
    release = job.versions.get("axolotl", "")
    if release and older(release, FIRST):
        return False
    dropout = keys.number("lora_dropout")
    return not (release and older(release, WITH_DROPOUT)) or (dropout is not None and dropout.value == 0)
