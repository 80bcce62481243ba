"""How a Python file loads its model: where `from_pretrained` puts it, and in which packing.

Facts from transformers 5.23.0 (`modeling_utils.py` `from_pretrained`, `integrations/accelerate.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.rows import Assumed
from .peft_arguments import set_quantization

if TYPE_CHECKING:
    from ..core.bindings.reader import Reader

SPREADS = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""Values of `device_map` that spread the layers over all GPUs that are seen."""


def set_device_map(reader: Reader) -> None:
    """How the layers are spread; a place for the whole model, `cuda:0` or `{"": 0}`, spreads nothing."""
    given = reader.keys.raw("device_map")
    if given is not None and isinstance(given.value, str) and given.value in SPREADS:
        reader.set("parallelism.device_map", given)


def set_packing(reader: Reader) -> None:
    """bitsandbytes' quantisation; another config that is given is not known."""
    given = reader.keys.raw("quantization_config")
    if given is None:
        set_quantization(reader)
    else:
        note = f"{given.value} says how the weights are packed"
        reader.put("weights.quantization", Assumed(None, note, unstated=True))
