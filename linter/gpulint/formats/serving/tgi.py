"""text-generation-launcher: its flags, and the environment variables of the same names.

Facts from text-generation-inference 3.3.7 and its tags from 1.0 on (`launcher/src/main.rs`, server
`models/flash_causal_lm.py`, `models/globals.py`), read.
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

ENGINE = Engine("tgi", "tgi", "3.3.7", "text-generation-inference")

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "gptq": ("gptq", 4), "marlin": ("gptq", 4), "eetq": ("eetq", 8), "fp8": ("fp8", 8),
    "bitsandbytes": ("bnb-int8", 8), "bitsandbytes-nf4": ("bnb-nf4", 4), "bitsandbytes-fp4": ("bnb-fp4", 4),
}  # fmt: skip

_WIGGLE = ((3, 3, 0.90), (3, 1, 0.93), (3, 0, 0.95), (2, 4, 0.90), (1, 4, 0.95), (0, 0, 1.0))
"""From major and minor version on: the share of the free memory that the cache takes (`TGI_WIGGLE_ROOM`)."""

_WORDS = Words(
    {
        "parallelism.tensor": "num-shard",
        "inference.max_model_len": "max-total-tokens",
        "inference.max_num_batched_tokens": "max-batch-prefill-tokens",
        "inference.max_num_seqs": "max-batch-size",
        "inference.kv_cache_dtype": "kv-cache-dtype",
        "inference.enforce_eager": "cuda-graphs",
        "weights.dtype": "dtype",
    },
    {"bnb-nf4": "bitsandbytes-nf4", "bnb-int8": "bitsandbytes", "eetq": "eetq", "fp8": "fp8"},
    "quantize",
    {
        "inference.kv_cache_dtype": {"fp8": "fp8_e4m3fn", "fp8_e4m3": "fp8_e4m3fn"},
        "inference.enforce_eager": {True: 0, False: None},
    },
)


def recognise(document: Document) -> bool:  # noqa: ARG001
    """No file of its own: its flags and variables stand in launchers."""
    return False


def read(document: Document, project: Project) -> Reading:
    """The Job of a TGI server."""
    server = Server(document, project, ENGINE)
    reading = server.begin()
    server.set_model("model_id")
    server.set_dtype("float16", f"float16 for most models: default of {ENGINE.upstream}", "dtype")
    server.set_quantization(QUANTIZATIONS, "quantize")
    _set_packing(server)
    _set_shards(server)
    _set_lengths(server)
    _set_share(server)
    server.set_cache_dtype("kv_cache_dtype")
    server.put("inference.max_num_seqs", "integer", ("max_batch_size",), None, "as the cache allows", least=1)
    builder = server.builder
    graphs = server.arguments.raw("cuda_graphs")
    if graphs is not None and str(graphs.value) == "0":
        builder.from_entry("inference.enforce_eager", True, graphs.entry, graphs.key)
    else:
        builder.default("inference.enforce_eager", False)
    adapters = server.arguments.text("lora_adapters")
    if adapters is not None:
        builder.from_entry("inference.enable_lora", True, adapters.entry, adapters.key, "it has adapters")
    else:
        builder.default("inference.enable_lora", False)
    for path, value in _UNSAID:
        builder.default(path, value)
    reading.problems = server.problems()
    return reading


_UNSAID: tuple[tuple[str, Any], ...] = (
    ("inference.cpu_offload_gb", 0.0), ("inference.speculative_model", None), ("inference.block_size", None),
    ("inference.max_loras", None), ("inference.max_lora_rank", None), ("inference.chunked_prefill", None),
)  # fmt: skip


def _set_packing(server: Server) -> None:
    """bitsandbytes packs experts, which are modules of their own then, with compressed statistics (layers/bnb.py)."""
    packed = server.builder.job.weights.quantization
    if packed is not None and packed.method.startswith("bnb"):
        note = "as the server packs them"
        server.builder.derived("weights.quantization.experts", True, note, "weights.quantization.method")
        double = packed.method != "bnb-int8"
        server.builder.derived("weights.quantization.double_quant", double, note, "weights.quantization.method")


def _set_shards(server: Server) -> None:
    """`num_shard`; without it, the GPUs that the process sees, unless `sharded` is false (main.rs find_num_shards)."""
    builder, arguments, asked = server.builder, server.arguments, server.project.asked
    sharded = arguments.flag("sharded")
    if "num_shard" in arguments or (sharded is not None and not sharded.value):
        shards = server.set_degrees(("parallelism.tensor", ("num_shard",)))
    else:
        shards = asked or 1
        told = "num_shard is not given: all GPUs that the server sees"
        if asked:
            builder.derived("parallelism.tensor", shards, told)
        else:
            builder.assumed("parallelism.tensor", shards, f"{told}; one")
    for path in ("parallelism.pipeline", "parallelism.data", "parallelism.expert"):
        builder.default(path, 1)
    server.set_gpus(shards, "one GPU a shard")


def _set_lengths(server: Server) -> None:
    """Tokens of a request and of a prefill step; their defaults moved with 2.0, 2.4.1 and 3.0 (main.rs)."""
    release = _release(server.version or "")
    total, step = (2048, 4096) if release < (2, 0) else (None, None)
    note = f"default of {ENGINE.title} {server.version}"
    if release < (2, 0):
        longest, prefill = note, note
    elif release < _UNBOUNDED:
        longest, prefill = f"the model's maximum, at most 4096: {note}", f"max_input_tokens + 50: {note}"
        total, step = 4096, 4145
    elif release < (3, 0):
        longest, prefill = f"what the model and the memory allow: {note}", f"4096, at most the model's maximum: {note}"
        step = 4096
    else:
        longest, prefill = f"what the model and the memory allow: {note}", f"by GPU: {note}"
    server.put("inference.max_model_len", "integer", ("max_total_tokens",), total, longest, least=1)
    given = server.arguments.integer("max_input_tokens", "max_input_length", least=1)
    requests = server.arguments.integer("max_batch_size", least=1)
    if given is not None and "max_batch_prefill_tokens" not in server.arguments and (2, 0) <= release < _UNBOUNDED:
        value, told = given.value + 50, "max_input_tokens + 50"
        if requests is not None:
            value, told = given.value * requests.value, "max_batch_size x max_input_tokens"
        server.builder.from_entry("inference.max_num_batched_tokens", value, given.entry, given.key, told)
    else:
        server.put("inference.max_num_batched_tokens", "integer", ("max_batch_prefill_tokens",), step, prefill, least=1)


_UNBOUNDED = (2, 4, 1)
"""The release from which on a request is bounded by what the memory allows."""


def _set_share(server: Server) -> None:
    """The share of the card: `cuda_memory_fraction` x the wiggle room of the version."""
    release = _release(server.version or "")
    room = next(share for major, minor, share in _WIGGLE if release >= (major, minor))
    own = server.arguments.number("TGI_WIGGLE_ROOM")
    if own is not None and 0 < own.value < 1:
        room = own.value
    given = server.arguments.number("cuda_memory_fraction")
    told = f"x {room:g}, the share of free memory that the cache takes"
    path = "inference.gpu_memory_utilization"
    if given is not None:
        server.builder.from_entry(path, round(given.value * room, 4), given.entry, given.key, told)
    else:
        server.builder.default(path, room, f"the share of free memory that the cache takes in {server.version}")


def _release(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.partition("-")[0].split(".") if part.isdigit()]
    return (*numbers, 0, 0)[:3] if numbers else (3, 3, 0)


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
    """The change in this format's words."""
    return _WORDS.describe(reading, changes, ENGINE)


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
    """The edits that make the change."""
    return _WORDS.edits(reading, changes, ENGINE)


FORMAT = Format(
    ENGINE.name, "text-generation-launcher flags and variables", ENGINE.upstream, recognise, read, describe, edits,
    "shards: num_shard, else all that the server sees",
    serves=True,
)  # fmt: skip
