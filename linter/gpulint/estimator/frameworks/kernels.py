"""Packages whose kernels take the place of what Transformers' modelling code writes out in torch."""

from __future__ import annotations

MIXERS = {
    "delta": "flash-linear-attention",
    "kimi_delta": "flash-linear-attention",
    "mamba": "mamba-ssm",
    "mamba2": "mamba-ssm",
    "mamba2_scaled": "mamba-ssm",
}
"""By the mixer of layers that do not attend (`mixer.MIXERS`)."""

ACTIVATIONS = {"xielu": "xielu"}
"""By the activation function (transformers 5.23 activations.py XIELUActivation)."""
