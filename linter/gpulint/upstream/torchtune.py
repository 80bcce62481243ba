"""torchtune."""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "torchtune"

COPIES_SCALED_LAYERS = Behaviour(
    NAME,
    "has the builders of Llama 3.1 and 3.2 make one layer and copy it, its rotary cache too",
    "models/*/_component_builders.py, modules/transformer.py `_get_clones`; 0.2.1 to 0.6.1",
    until="0.3",
)
COPIES_LAYERS = Behaviour(
    NAME,
    "has the builders of other models make one layer and copy it",
    "models/*/_component_builders.py, modules/transformer.py `_get_clones` up to 0.5; 0.2.1 to 0.6.1",
    until="0.6",
)
WIDE_NORM = Behaviour(
    NAME,
    "has its RMSNorm compute in float32 and save that",
    "modules/rms_norm.py of 0.5 and 0.6; torch's own from 0.7 on",
    since="0.5",
    until="0.7",
)

DEFAULTS = (Default(NAME, "fsdp_version", 1, "recipes/*_distributed.py of the wheels 0.1.0 to 0.6.1", until="0.3"),)
