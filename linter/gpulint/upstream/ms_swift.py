"""ms-swift."""

from __future__ import annotations

from .behaviour import Default

NAME = "ms-swift"

_ARGUMENTS = (
    "megatron/arguments of the wheels 3.0.0 to 4.6.0; cross_entropy_fusion_impl in megatron_args.py of 4.0.0, 4.1.0,"
    " 4.1.3, 4.2.0, 4.3.0, 4.4.0, 4.5.0 and 4.6.0"
)

DEFAULTS = (
    Default(NAME, "cross_entropy_loss_fusion", False, _ARGUMENTS, until="4.0"),
    Default(NAME, "cross_entropy_fusion_impl", "native", _ARGUMENTS, until="4.1"),
    Default(NAME, "cross_entropy_fusion_impl", "te", _ARGUMENTS, since="4.1", until="4.4"),
)
