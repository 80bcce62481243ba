"""What SGLang holds for a checkpoint's weights beside what lies in its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..vllm.weights import SIXTEEN_BIT, fused_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....hardware.gpu import Gpu
    from ....models.model import Model
    from ...states.parameters import Parameter

SOURCE = (
    "sglang 0.5.12 srt/layers/quantization/fp8.py, mxfp4_marlin_moe.py; srt/models/deepseek_v4.py, gemma4_causal.py"
)

_SCALED = 32
"""Elements of an expert's row under one scale."""


class Added(NamedTuple):
    """Bytes above the checkpoint's: `sure` in any case, `scales` with Marlin's kernel alone."""

    sure: int
    scales: int


def added(model: Model, found: Iterable[Parameter], gpu: Gpu | None) -> Added:
    """What DeepSeek-V4 and Gemma 3n and 4 (`fused_keys`) take more on one rank; nothing for other models.

    DeepSeek-V4: fp8 projections of the compressor, and before Blackwell the first one of attention's output, are loaded
    in 16 bits. Experts of 4 bits are read with float32 scales in place of those of 1 byte; before Blackwell
    `moe_runner_backend` marlin keeps them beside its own, flashinfer_mxfp4 does not (by which Pro starts on eight H200,
    sglang PR 25923).
    """
    if model.model_type != "deepseek_v4":
        return Added(fused_keys(model, found), 0)
    older = gpu is not None and (gpu.compute_capability or 0) < 10
    names = (*SIXTEEN_BIT, ".o_a_proj.") if older else SIXTEEN_BIT
    sure = sum(
        item.elements * 2 - item.raw for item in found if item.packed and any(name in item.name for name in names)
    )
    small = older and model.config.get("expert_dtype") == "fp4"
    experts = sum(item.elements for item in found if item.role.startswith("expert_")) if small else 0
    return Added(sure, experts // _SCALED * 4)
