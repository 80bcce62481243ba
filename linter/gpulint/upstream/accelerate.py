"""Accelerate."""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "accelerate"

ZERO3_INIT_ALWAYS = Behaviour(
    NAME,
    "tells Transformers of ZeRO-3 whatever `zero3_init_flag` says; before, each rank makes the model whole without",
    "pull request 3097: `set_deepspeed_weakref`, which `from_pretrained` asks",
    since="1.0",
)
DEFERS_FSDP2 = Behaviour(
    NAME,
    "has `no_sync` call FSDP 2's `set_requires_gradient_sync`; before, it looked for a method `no_sync`, which FSDP 2's"
    " modules have not, and so reduced every micro step",
    "accelerator.py of 1.10.1 and 1.11",
    since="1.11",
)

_DATACLASSES = "utils/dataclasses.py of the wheels 0.10.0 to 0.16.0 and 0.24.0 to 1.15.0"

DEFAULTS = (
    Default(NAME, "zero3_init_flag", False, _DATACLASSES, until="0.16"),
    Default(NAME, "fsdp_use_orig_params", False, _DATACLASSES, until="0.25"),
)
