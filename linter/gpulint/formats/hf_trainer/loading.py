"""How a Python file loads its model: where `from_pretrained` puts it, and in which packing.

Facts from transformers 5.23.0 (`modeling_utils.py` `from_pretrained`, `integrations/accelerate.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import transformers
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
        if reader.document.syntax == "python" and reader.job.weights.quantization is not None:
            _open_release(reader)
    else:
        note = f"{given.value} says how the weights are packed"
        reader.put("weights.quantization", Assumed(None, note, unstated=True))


RELEASES = ("4.57.3", "5.23.0")
"""The newest release before, and one since, experts became whole tensors, which bitsandbytes leaves as they are."""


def _open_release(reader: Reader) -> None:
    """A Python file states no release of Transformers, and whoever runs it may have either."""
    path = "versions.transformers"
    origin = reader.job.origins.get(path)
    if (
        origin is not None
        and reader.project.versions.get(transformers.NAME) is None
        and path not in reader.job.unstated
    ):
        reader.job.origins[path] = origin._replace(values=RELEASES)
        reader.job.unstated.append(path)
