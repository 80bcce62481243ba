"""Modules that Transformers keeps out of half precision (`_keep_in_fp32_modules`), or bitsandbytes as they are.

Loaded in float16 they are float32; bitsandbytes packs none of them, whatever the dtype (modeling_utils.py 4.38
`from_pretrained`, 5.23 `_get_dtype_plan`; quantizers/base.py `get_modules_to_not_convert`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...upstream.stack import Stack
from ...upstream.transformers import PACKS_LINEAR_ALONE
from ..frameworks.frameworks import of_transformers

if TYPE_CHECKING:
    from ...job.job import Job, Quantization
    from ...models.model import Model, Tensor

KEPT = {"t5": ("wo",), "mt5": ("wo",), "umt5": ("wo",)}
"""T5's last projection of the feed-forward layers overflows in float16."""

SUBCLASSED = {
    "falcon": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),
    "llama4": ("feed_forward.router",),
    "llama4_text": ("feed_forward.router",),
    "phimoe": ("mlp.router",),
}
"""Modules of classes that derive from nn.Linear (modeling_falcon.py `FalconLinear`, modeling_llama4.py `Llama4Router`,
modeling_phimoe.py `PhimoeTopKRouter`)."""


def unconverted(job: Job, model: Model) -> tuple[str, ...]:
    """The last names of the modules that bitsandbytes leaves as they are because of their class."""
    engine = job.inference.engine if job.kind == "inference" and job.inference else "transformers"
    if engine != "transformers" or not of_transformers(job):
        return ()
    return SUBCLASSED.get(model.model_type, ()) if Stack(job).does(PACKS_LINEAR_ALONE) else ()


def kept(job: Job, model: Model) -> tuple[str, ...]:
    """The last names of the modules that are kept."""
    return KEPT.get(model.model_type, ()) if of_transformers(job) else ()


def stored(tensor: Tensor, dtype: str, names: tuple[str, ...]) -> str:
    """The dtype of a tensor that is not packed."""
    return "float32" if dtype == "float16" and tensor.module.rpartition(".")[2] in names else dtype


def left_out(quantization: Quantization, names: tuple[str, ...]) -> Quantization:
    """With the kept modules in the skip list, where the method packs on loading."""
    if not names or not quantization.method.startswith("bnb"):
        return quantization
    return replace(quantization, skip=[*quantization.skip, *names])
