"""LMDeploy: the flags of `lmdeploy serve api_server`.

Facts from lmdeploy 0.18.0 (`cli/serve.py`, `cli/utils.py`, `messages.py`, `utils.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.format import Format
from .engine_edits import Words
from .server import Engine, Server

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ..core.format import Project, Reading

ENGINE = Engine("lmdeploy", "lmdeploy", "0.18.0", "lmdeploy", prefixes=True)

_FORMATS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "gptq": ("gptq", 4), "fp8": ("finegrained-fp8", 8), "mxfp4": ("mxfp4", 4),
}  # fmt: skip

_POLICIES = {
    "0": "auto", "none": "auto", "4": "int4", "int4": "int4", "8": "int8", "int8": "int8", "16": "fp8_e4m3",
    "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "17": "fp8_e5m2", "fp8_e5m2": "fp8_e5m2",
}  # fmt: skip
"""`quant-policy` -> dtype of the KV cache (messages.py QuantPolicy)."""

_REQUESTS = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "h200": 1024}
"""Requests of a batch by card, 128 on others (utils.py get_max_batch_size)."""

_WORDS = Words(
    {
        "parallelism.tensor": "tp",
        "parallelism.data": "dp",
        "inference.max_model_len": "session-len",
        "inference.max_num_seqs": "max-batch-size",
        "inference.max_num_batched_tokens": "max-prefill-token-num",
        "inference.gpu_memory_utilization": "cache-max-entry-count",
        "inference.kv_cache_dtype": "quant-policy",
        "inference.enforce_eager": "eager-mode",
        "weights.dtype": "dtype",
    },
    values={"inference.kv_cache_dtype": {"int8": 8, "int4": 4, "fp8": "fp8", "fp8_e4m3": "fp8", "auto": 0}},
)


def recognise(document: Document) -> bool:  # noqa: ARG001
    """No file of its own: its flags stand in launchers."""
    return False


def read(document: Document, project: Project) -> Reading:
    """The Job of an LMDeploy server."""
    server = Server(document, project, ENGINE)
    reading = server.begin()
    builder, arguments = server.builder, server.arguments
    server.set_model("model_path")
    server.set_dtype(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}", "dtype")
    server.set_quantization(_FORMATS, "model_format")
    gpus = server.set_degrees(("parallelism.tensor", ("tp",)), ("parallelism.data", ("dp",)))
    builder.default("parallelism.pipeline", 1)
    server.put("parallelism.expert", "integer", ("ep",), 1, least=1)
    server.set_gpus(gpus, "tensor x data parallel size")
    server.put("inference.max_model_len", "integer", ("session_len",), None, "the model's maximum", least=1)
    server.put("inference.gpu_memory_utilization", "number", ("cache_max_entry_count",), 0.8)
    _set_requests(server)
    server.put("inference.max_num_batched_tokens", "integer", ("max_prefill_token_num",), 8192, least=1)
    server.put("inference.block_size", "integer", ("cache_block_seq_len",), 64, least=1)
    server.put("inference.enforce_eager", "flag", ("eager_mode",), False)
    policy = arguments.raw("quant_policy")
    value = _POLICIES.get(str(policy.value).lower()) if policy is not None else None
    if policy is not None and value:
        builder.from_entry("inference.kv_cache_dtype", value, policy.entry, policy.key)
    else:
        builder.default("inference.kv_cache_dtype", "auto")
    adapters = arguments.raw("adapters")
    if adapters is not None:
        builder.from_entry("inference.enable_lora", True, adapters.entry, adapters.key, "it has adapters")
    else:
        builder.default("inference.enable_lora", False)
    server.put("inference.speculative_model", "text", ("speculative_draft_model",), None)
    for path, unsaid in (
        ("inference.cpu_offload_gb", 0.0),
        ("inference.max_loras", None),
        ("inference.max_lora_rank", None),
        ("inference.chunked_prefill", None),
    ):
        builder.default(path, unsaid)
    reading.problems = server.problems()
    return reading


def _set_requests(server: Server) -> None:
    gpu = server.project.gpu
    family = gpu.name.partition("-")[0] if gpu is not None else ""
    default = None if gpu is None else _REQUESTS.get(family, 128)
    note = f"default of {ENGINE.upstream}, by GPU"
    server.put("inference.max_num_seqs", "integer", ("max_batch_size",), default, note, least=1)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change in this format's words."""
    return _WORDS.describe(reading, changes, ENGINE)


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change."""
    return _WORDS.edits(reading, changes, ENGINE)


FORMAT = Format(
    ENGINE.name, "LMDeploy api_server flags", ENGINE.upstream, recognise, read, describe, edits,
    "tensor x data parallel size",
    serves=True,
)  # fmt: skip
