"""Which modules a quantisation's skip list leaves alone.

Modules that Transformers keeps out of half precision (`_keep_in_fp32_modules`), or bitsandbytes as they are.

Loaded in float16 they are float32; bitsandbytes packs none of them, whatever the dtype (modeling_utils.py 4.38
`from_pretrained`, 5.23 `_get_dtype_plan`; quantizers/base.py `get_modules_to_not_convert`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...upstream.stack import Stack
from ...upstream.transformers import PACKS_LINEAR_ALONE
from ..frameworks.frameworks import of_transformers

if TYPE_CHECKING:
    from ...job.job import Job, Quantization
    from ...models.model import Model, Tensor


def skipped_layers(tensor: Tensor, quantization: Quantization) -> tuple[int, ...] | bool:
    """The layers whose copy of a tensor is skipped; for a tensor outside the layers, whether it is.

    True too where a pattern names the tensor without its layer. Experts are fused here and single modules in
    checkpoints, so that a pattern on `experts.0.gate_proj` or `experts.0.w1` names them as well.
    """
    if not quantization.skip:
        return False
    return _skipped(_names(tensor), tensor.layers, tuple(quantization.skip))


def skips(module: str, quantization: Quantization) -> bool:
    """Whether a module of this whole name is skipped."""
    return bool(_skipped((module,), None, tuple(quantization.skip)))


@lru_cache(4096)
def _skipped(names: tuple[str, ...], layers: tuple[int, ...] | None, skip: tuple[str, ...]) -> tuple[int, ...] | bool:
    patterns = _compiled(skip)
    if not patterns.names and not patterns.expressions:
        return False
    if layers is None:
        return any(patterns.match(name) for name in names)
    found = tuple(layer for layer in layers if any(patterns.match(name.replace("{0}", str(layer))) for name in names))
    return True if found == layers else found


class _Patterns(NamedTuple):
    names: frozenset[str]
    expressions: tuple[re.Pattern[str], ...]

    def match(self, module: str) -> bool:
        """Whether a module or anything it lies in is named."""
        parts = module.split(".")
        if self.names:
            for start in range(len(parts)):
                for end in range(start + 1, len(parts) + 1):
                    if ".".join(parts[start:end]) in self.names:
                        return True
        return any(expression.match(module) for expression in self.expressions)


@cache
def _compiled(skip: tuple[str, ...]) -> _Patterns:
    """Plain names, and what must be matched as an expression.

    Plain names are dotted parts: `gate` names `mlp.gate`, not `mlp.gate_proj`. `re:` is a regular expression from
    the name's start (compressed_tensors/utils/match.py `match_name`). A star matches the whole name as a glob
    (vLLM and SGLang modelopt.py `is_layer_excluded`); after a layer's number it ends at a dot (transformers
    quantizers/quantizers_utils.py `subtree_pattern_to_regex`). A broken expression names nothing.
    """
    names, expressions = set(), []
    for pattern in skip:
        if pattern.startswith("re:"):
            written = pattern[3:]
        elif "*" in pattern:
            written = re.escape(pattern).replace(r"\*", ".*") + r"\Z"
            if pattern.endswith("*") and pattern[-2:-1].isdigit():
                written = re.escape(pattern[:-1]).replace(r"\*", ".*") + r"(\..*)?\Z"
        else:
            names.add(pattern.removesuffix(".weight").strip("."))
            continue
        try:
            expressions.append(re.compile(written))
        except re.error:
            continue
    return _Patterns(frozenset(names), tuple(expressions))


_EXPERT_NAMES = {"expert_gate_up": ("gate_proj", "up_proj", "w1", "w3"), "expert_down": ("down_proj", "w2")}
"""Module names of one expert's matrices in checkpoints."""


def _names(tensor: Tensor) -> tuple[str, ...]:
    parent = tensor.module.rpartition(".")[0]
    return (tensor.module, *(f"{parent}.0.{leaf}" for leaf in _EXPERT_NAMES.get(tensor.role, ())))


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
