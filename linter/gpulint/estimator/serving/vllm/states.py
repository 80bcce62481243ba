"""The constant states of a hybrid model's layers, as vLLM keeps them in pages of its KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.serving import vllm
from ...states.storage import dtype_bytes
from ...unmodeled import mixing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....models.model import Model
    from ..layer_cache import LayerCache

_FLOAT32 = 4.0


def state_bytes(model: Model, version: str | None) -> float | None:
    """Bytes of an element of a recurrent state; None for that of the model.

    Kimi delta attention keeps float32 whatever is asked for (model_executor/layers/mamba/mamba_utils.py
    `kda_state_dtype`), Nemotron-H its config's `mamba_ssm_cache_dtype`, the others their config's `mamba_ssm_dtype`.
    All checkpoints of Qwen 3.5 that state it state float32, and the log of one whose config is not at hand agrees
    (Qwen3.5-9B, vLLM 0.20: blocks of 528 tokens).
    """
    if mixing(model) == "kimi_delta":
        return _FLOAT32
    if model.model_type.startswith("nemotron_h"):
        if not vllm.NEMOTRON_OWN_DTYPE.at(version):
            return None
        stated = model.config.get("mamba_ssm_cache_dtype")
        usual = "float32" if vllm.NEMOTRON_FLOAT32.at(version) else "float16"
        return dtype_bytes(stated if isinstance(stated, str) else usual)
    if model.shape.state_dtype:
        return dtype_bytes(model.shape.state_dtype)
    return _FLOAT32 if model.model_type.startswith("qwen3_5") else None


_KEEPS_ALL = ("bamba", "falcon_h1", "granitemoehybrid", "jamba", "mamba", "mamba2", "nemotron_h", "zamba2")
"""Model types that keep a state for every block of tokens (`SupportsMambaPrefixCaching` in models/*.py)."""


def state_blocks(model: Model, prefix_caching: bool | None, version: str | None, drafted: int = 0) -> int:
    """Blocks of states that one request may take; 0 for one with each block of tokens.

    1, and with prefix caching the last two (`align`), or all for the models that could before 0.28; but for all, one
    more for each of the tokens that are `drafted` in a step (layers/mamba/abstract.py `num_speculative_blocks`).
    Prefix caching of hybrid models is off before 0.26 unless asked for, and on since.
    """
    on = vllm.HYBRID_PREFIX_CACHING.at(version) if prefix_caching is None else prefix_caching
    if not on or not vllm.CACHES_STATES.at(version):
        return 1 + drafted
    return 0 if vllm.KEEPS_ALL_STATES.at(version) and model.model_type in _KEEPS_ALL else 2 + drafted


_DELTA = ("delta", "kimi_delta")


def with_states(caches: Iterable[LayerCache], model: Model, drafted: int = 0) -> tuple[LayerCache, ...]:
    """The caches with one position less of each convolution than its kernel has, which transformers keeps.

    Those of delta rules have a position for each `drafted` token besides.
    Source: vllm model_executor/layers/mamba/mamba_utils.py `MambaStateShapeCalculator` (`conv_kernel - 1`;
    `gated_delta_net_state_shape`, `kda_state_shape`: `+ num_spec`).
    """
    shapes = (item.shape for item in model.tensors if item.role == "conv")
    kernel = next((shape[2] for shape in shapes if len(shape) == 3 and shape[1] == 1), 1)
    kept = kernel - 1 + (drafted if mixing(model) in _DELTA else 0)
    return tuple(cache._replace(conv=cache.conv // kernel * kept) for cache in caches)
