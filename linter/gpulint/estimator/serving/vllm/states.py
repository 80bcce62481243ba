"""The constant states of a hybrid model's layers, as vLLM keeps them in pages of its KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....versions import older
from ...states.storage import dtype_bytes
from ...unmodeled import mixing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....models.model import Model
    from ..kv_cache import LayerCache

_FLOAT32 = 4.0

_NEMOTRON = (("0.20", "float32"), ("0.13", "float16"))
"""Releases from which a Nemotron-H model's states are of that dtype where its config has no `mamba_ssm_cache_dtype`
(model_executor/models/config.py `NemotronHForCausalLMConfig`: float16 in 0.13.0 and 0.15.1, float32 in 0.20.0; 0.11.2
has no such class)."""


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
        since = next((dtype for release, dtype in _NEMOTRON if not older(version, release)), None)
        stated = model.config.get("mamba_ssm_cache_dtype") if since else None
        dtype = stated if isinstance(stated, str) else since
        return dtype_bytes(dtype) if dtype else None
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
    Source: vllm v1/kv_cache_interface.py `MambaSpec.max_memory_usage_bytes` (in 0.15.1; 0.14.0 counts one);
    model_executor/models/config.py `MambaModelConfig` (all: 0.15.1 to 0.26, align alone: 0.28), config/model.py
    `is_prefix_caching_supported` (0.24 no, 0.26 yes).
    """
    on = not older(version, "0.26") if prefix_caching is None else prefix_caching
    if not on or older(version, "0.15"):
        return 1 + drafted
    return 0 if older(version, "0.28") and model.model_type in _KEEPS_ALL else 2 + drafted


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
