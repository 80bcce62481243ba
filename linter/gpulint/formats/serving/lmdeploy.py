"""LMDeploy: the flags of `lmdeploy serve api_server`.

Facts from lmdeploy 0.18.0 (`cli/serve.py`, `cli/utils.py`, `messages.py`, `utils.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, WHOLE_TEXT, Kind, Unsaid
from ..core.bindings.rows import NEVER, Default, Fixed, Key, Table
from ..core.format import Format
from .server import (
    Engine,
    Server,
    degrees,
    gpus_of_degrees,
    quantization,
    served_model,
    server,
    spelled_as,
    stored_dtype,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.bindings.reader import Reader
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


def read(document: Document, project: Project) -> Reading:
    """The Job of an LMDeploy server."""
    reader = Server(document, project, ENGINE)
    reader.bind(TABLE.rows)
    reader.reading.problems = reader.problems()
    return reader.reading


def _requests(reader: Reader) -> Default:
    gpu = reader.project.gpu
    family = gpu.name.partition("-")[0] if gpu is not None else ""
    return Default(None if gpu is None else _REQUESTS.get(family, 128), f"default of {ENGINE.upstream}, by GPU")


def _policy(value: Any) -> Any:
    return _POLICIES.get(str(value).lower(), Unsaid.OTHER)


def _written(dtype: Any) -> Any:
    return {"int8": 8, "int4": 4, "fp8_e4m3": "fp8", "fp8_e5m2": "fp8_e5m2", "auto": 0}.get(dtype, Unsaid.OTHER)


_POLICY = Kind("a policy of the cache", _policy, _written, samples=("int8", "int4", "fp8_e4m3", "fp8_e5m2", "auto"))

TABLE = Table(
    (
        *server(ENGINE),
        served_model("model_path"),
        stored_dtype("dtype", Default(None, f"auto, the checkpoint's own: default of {ENGINE.upstream}")),
        *quantization(_FORMATS, "model_format"),
        *degrees(Key("parallelism.tensor", "tp", POSITIVE, 1), Key("parallelism.data", "dp", POSITIVE, 1)),
        Fixed("parallelism.pipeline", 1),
        Key("parallelism.expert", "ep", POSITIVE, 1),
        gpus_of_degrees("tensor x data parallel size"),
        Key("inference.max_model_len", "session_len", POSITIVE, Default(None, "the model's maximum")),
        Key("inference.gpu_memory_utilization", "cache_max_entry_count", NUMBER, 0.8),
        Key("inference.max_num_seqs", "max_batch_size", POSITIVE, _requests),
        Key("inference.max_num_batched_tokens", "max_prefill_token_num", POSITIVE, 8192),
        Key("inference.block_size", "cache_block_seq_len", POSITIVE, 64),
        Key("inference.enforce_eager", "eager_mode", FLAG, default=False),
        Key(
            "inference.kv_cache_dtype", "quant_policy", _POLICY, "auto", blank=Default("auto"),
            back=lambda dtype, _: "fp8_e4m3" if dtype == "fp8" else dtype,
        ),
        Key("inference.enable_lora", "adapters", ANYTHING, False, lambda *_: True, NEVER, note="it has adapters"),
        Key("inference.speculative_model", "speculative_draft_model", WHOLE_TEXT, None),
        Fixed("inference.cpu_offload_gb", 0.0),
        Fixed("inference.max_loras", None),
        Fixed("inference.max_lora_rank", None),
        Fixed("inference.chunked_prefill", None),
    ),
    spelled=spelled_as(ENGINE),
)  # fmt: skip

FORMAT = Format.of_table(
    ENGINE.name, "LMDeploy api_server flags", ENGINE.upstream, read, TABLE, "tensor x data parallel size",
    serves=True,
)  # fmt: skip
