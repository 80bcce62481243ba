"""text-generation-launcher: its flags, and the environment variables of the same names.

Facts from text-generation-inference 3.3.7 and its tags from 1.0 on (`launcher/src/main.rs`, server
`models/flash_causal_lm.py`, `models/globals.py`), read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, Kind, Unsaid
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table
from ..core.format import Format
from .server import (
    Engine,
    Server,
    cache_dtype,
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

ENGINE = Engine("tgi", "tgi", "3.3.7", "text-generation-inference")

QUANTIZATIONS: dict[str, tuple[str, float | None]] = {
    "awq": ("awq", 4), "gptq": ("gptq", 4), "marlin": ("gptq", 4), "eetq": ("eetq", 8), "fp8": ("fp8", 8),
    "bitsandbytes": ("bnb-int8", 8), "bitsandbytes-nf4": ("bnb-nf4", 4), "bitsandbytes-fp4": ("bnb-fp4", 4),
}  # fmt: skip

_WIGGLE = ((3, 3, 0.90), (3, 1, 0.93), (3, 0, 0.95), (2, 4, 0.90), (1, 4, 0.95), (0, 0, 1.0))
"""From major and minor version on: the share of the free memory that the cache takes (`TGI_WIGGLE_ROOM`)."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a TGI server."""
    reader = Server(document, project, ENGINE)
    reader.bind(TABLE.rows)
    reader.reading.problems = reader.problems()
    return reader.reading


def _set_packing(reader: Reader) -> None:
    """bitsandbytes packs experts, which are modules of their own then, with compressed statistics (layers/bnb.py)."""
    packed = reader.job.weights.quantization
    if packed is not None and packed.method.startswith("bnb"):
        note, method = "as the server packs them", "weights.quantization.method"
        reader.derived("weights.quantization.experts", True, note, method)
        reader.derived("weights.quantization.double_quant", packed.method != "bnb-int8", note, method)


def _set_shards(reader: Reader) -> None:
    """`num_shard`; without it, the GPUs that the process sees, unless `sharded` is false (main.rs find_num_shards)."""
    path = "parallelism.tensor"
    if "num_shard" in reader.keys or reader.value(FLAG, "sharded") is False:
        reader.bind(degrees(Key(path, "num_shard", POSITIVE, 1)))
        return
    asked, told = reader.project.asked, "num_shard is not given: all GPUs that the server sees"
    reader.put(path, Derived(asked, told) if asked else Assumed(1, f"{told}; one"))


def _set_lengths(reader: Reader) -> None:
    """Tokens of a request and of a prefill step; their defaults moved with 2.0, 2.4.1 and 3.0 (main.rs)."""
    assert isinstance(reader, Server)
    release = _release(reader.version or "")
    total, step = (2048, 4096) if release < (2, 0) else (None, None)
    note = f"default of {ENGINE.title} {reader.version}"
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
    reader.bind([Key("inference.max_model_len", "max_total_tokens", POSITIVE, Default(total, longest))])
    given = reader.given(POSITIVE, "max_input_tokens", "max_input_length")
    requests = reader.value(POSITIVE, "max_batch_size")
    if given is not None and "max_batch_prefill_tokens" not in reader.keys and (2, 0) <= release < _UNBOUNDED:
        value, told = given.value + 50, "max_input_tokens + 50"
        if requests is not None:
            value, told = given.value * requests, "max_batch_size x max_input_tokens"
        reader.set("inference.max_num_batched_tokens", given, value, told)
    reader.bind([Key("inference.max_num_batched_tokens", "max_batch_prefill_tokens", POSITIVE, Default(step, prefill))])


_UNBOUNDED = (2, 4, 1)
"""The release from which on a request is bounded by what the memory allows."""


def _set_share(reader: Reader) -> None:
    """The share of the card: `cuda_memory_fraction` x the wiggle room of the version."""
    assert isinstance(reader, Server)
    release = _release(reader.version or "")
    room = next(share for major, minor, share in _WIGGLE if release >= (major, minor))
    own = reader.value(NUMBER, "TGI_WIGGLE_ROOM", default=0.0)
    if 0 < own < 1:
        room = own
    path, told = "inference.gpu_memory_utilization", "the share of free memory that the cache takes"
    given = reader.given(NUMBER, "cuda_memory_fraction")
    if given is not None:
        reader.set(path, given, round(given.value * room, 4), f"x {room:g}, {told}")
    else:
        reader.default(path, room, f"{told} in {reader.version}")


def _release(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.partition("-")[0].split(".") if part.isdigit()]
    return (*numbers, 0, 0)[:3] if numbers else (3, 3, 0)


def _eager(sizes: Any) -> Any:
    return True if str(sizes) == "0" else Unsaid.OTHER


_GRAPHS = Kind("sizes of batches, 0 for none", _eager, lambda eager: 0 if eager else None, samples=(True, False))
"""`cuda_graphs`, as whether there are none."""

TABLE = Table(
    (
        *server(ENGINE),
        served_model("model_id"),
        stored_dtype("dtype", Default("float16", f"float16 for most models: default of {ENGINE.upstream}")),
        *quantization(
            QUANTIZATIONS, "quantize",
            {"bnb-nf4": "bitsandbytes-nf4", "bnb-int8": "bitsandbytes", "eetq": "eetq", "fp8": "fp8"},
        ),
        _set_packing,
        _set_shards,
        Key("parallelism.tensor", "num_shard", POSITIVE, 1),
        Fixed("parallelism.pipeline", 1),
        Fixed("parallelism.data", 1),
        Fixed("parallelism.expert", 1),
        gpus_of_degrees("one GPU a shard"),
        _set_lengths,
        Key("inference.max_model_len", "max_total_tokens", POSITIVE),
        Key("inference.max_num_batched_tokens", "max_batch_prefill_tokens", POSITIVE),
        _set_share,
        cache_dtype("kv_cache_dtype", {"fp8": "fp8_e4m3fn", "fp8_e4m3": "fp8_e4m3fn"}),
        Key("inference.max_num_seqs", "max_batch_size", POSITIVE, Default(None, "as the cache allows")),
        Key("inference.enforce_eager", "cuda_graphs", _GRAPHS, default=False, blank=Default(False)),
        Key(
            "inference.enable_lora", "lora_adapters", TEXT, False, lambda *_: True, NEVER, note="it has adapters",
            blank=Default(False),
        ),
        Fixed("inference.cpu_offload_gb", 0.0),
        Fixed("inference.speculative_model", None),
        Fixed("inference.block_size", None),
        Fixed("inference.max_loras", None),
        Fixed("inference.max_lora_rank", None),
        Fixed("inference.chunked_prefill", None),
    ),
    spelled=spelled_as(ENGINE),
)  # fmt: skip

FORMAT = Format.of_table(
    ENGINE.name, "text-generation-launcher flags and variables", ENGINE.upstream, read, TABLE,
    "shards: num_shard, else all that the server sees",
    serves=True,
)  # fmt: skip
