"""Job changes in the words of vLLM's options, spelled as the file spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.key_changes import Keys, as_written, edits_of, spoken

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ..core.format import Reading

_OPTIONS = {
    "parallelism.tensor": "tensor-parallel-size",
    "parallelism.pipeline": "pipeline-parallel-size",
    "parallelism.data": "data-parallel-size",
    "inference.max_model_len": "max-model-len",
    "inference.max_num_seqs": "max-num-seqs",
    "inference.max_num_batched_tokens": "max-num-batched-tokens",
    "inference.gpu_memory_utilization": "gpu-memory-utilization",
    "inference.kv_cache_dtype": "kv-cache-dtype",
    "inference.enforce_eager": "enforce-eager",
    "inference.cpu_offload_gb": "cpu-offload-gb",
    "inference.max_lora_rank": "max-lora-rank",
    "inference.max_loras": "max-loras",
    "inference.chunked_prefill": "enable-chunked-prefill",
    "weights.dtype": "dtype",
}
"""Job field -> the option that says it."""

_QUANTIZATIONS = {"fp8": "fp8", "bnb-nf4": "bitsandbytes"}
"""Methods that vLLM applies while it loads 16-bit weights."""


def keys_for(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The options to write; None when a part is not vLLM's to say."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path == "weights.quantization.method" and value in _QUANTIZATIONS:
            wanted[_spelled(reading, "quantization")] = _QUANTIZATIONS[value]
        elif path in _OPTIONS:
            wanted[_spelled(reading, _OPTIONS[path])] = value
        else:
            return None
    return wanted


def _spelled(reading: Reading, option: str) -> str:
    """The option with the dashes or underscores that the file gives it, or gives most of its keys."""
    written = list(reading.config.root.keys())
    same = next((key for key in reversed(written) if key.replace("_", "-") == option), None)
    if same:
        return same
    underscores = sum("_" in key and "-" not in key for key in written)
    dashes = sum("-" in key for key in written)
    return option.replace("-", "_") if underscores > dashes else option


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change as options: `max-model-len: 8192`."""
    return spoken(as_written(reading.config, keys_for(reading, changes)))


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change; None when vLLM cannot say it or the file cannot be edited safely."""
    return edits_of(reading.config, keys_for(reading, changes))
