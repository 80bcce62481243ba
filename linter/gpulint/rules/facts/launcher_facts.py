"""Facts about what a job is started on: GPUs requested and used, host RAM, disk."""

from __future__ import annotations

import re
from typing import Any

from ...job.placement import Limit, devices_listed, shortages
from ...units import GIB, MOST
from ..expression import UNKNOWN
from .facts import Facts, fact


@fact("ranks", type="whole number")
def _ranks(facts: Facts) -> Any:
    """GPUs that the job uses: the product of a server's parallel sizes, or the processes of a training run."""
    job = facts.job
    if job.kind == "training":
        return job.world_size
    return job.model_shards * (job.parallelism.data or 1)


def _placement_fact(by: Limit, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        return next((item.why for item in shortages(facts.job) if item.by == by), None)

    derive.__doc__ = meaning
    fact(f"placement.{by}")(derive)


_placement_fact("stated", "Why the GPUs of the job are too few for one replica of its model; null if they are not.")
_placement_fact("started", "Why the GPUs that gpulint is told of are too few for the processes of a node; null if not.")
_placement_fact("asked", "Why the GPUs that the launcher requests are too few for the ranks; null if they are not.")
_placement_fact("visible", "Why the GPUs in CUDA_VISIBLE_DEVICES are too few for the ranks; null if they are not.")


@fact("gpus.requested_per_node", type="whole number")
def _per_node(facts: Facts) -> Any:
    """GPUs that the launcher requests per node."""
    asked = facts.job.hardware.asked_gpus
    return UNKNOWN if asked is None else asked // (facts.job.hardware.nodes or 1)


@fact("gpus.requested", type="whole number")
def _requested(facts: Facts) -> Any:
    """GPUs that the launcher requests for one copy of the job; a server that fits on one node runs on each node."""
    asked, each = facts.job.hardware.asked_gpus, facts.get("gpus.requested_per_node")
    if asked is None:
        return UNKNOWN
    return each if facts.job.kind == "inference" and facts.get("ranks") <= each else asked


@fact("gpus.visible", type="whole number")
def _visible(facts: Facts) -> Any:
    """Number of devices in the launcher's `CUDA_VISIBLE_DEVICES`."""
    count = devices_listed(facts.get("launch.environment.CUDA_VISIBLE_DEVICES"))
    return UNKNOWN if count is None else count


@fact("gpus.refused_in_one_process", type="true or false")
def _refused(facts: Facts) -> Any:
    """Whether this release of the program rejects several GPUs in a single process."""
    origin = facts.job.origins.get("parallelism.one_process")
    return origin is not None and origin.kind == "derived" and not facts.job.parallelism.one_process


def _host_fact(name: str, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        estimate = facts.outline
        memory = estimate.host_memory if estimate is not None else None
        return UNKNOWN if memory is None else getattr(memory, name)

    derive.__doc__ = meaning
    fact(f"host.{name}", "bytes")(derive)


_host_fact("load", "Host RAM of one node while the ranks load the model.")
_host_fact("train", "Host RAM of one node that offloading takes during training.")
_host_fact("save", "Host RAM of one node while a full checkpoint is gathered, offloaded states included.")
_host_fact("high", "Upper bound of the host RAM of one node.")


@fact("host.pinned", "bytes")
def _pinned(facts: Facts) -> Any:
    """Host RAM of one node that a server pins for the KV cache: offloaded, hierarchical, of LMCache, for all its ranks.

    vLLM's `kv_offloading_size` is for all ranks together (config/cache.py), LMCache's limit and SGLang's `hicache_size`
    for each (storage_backend/local_cpu_backend.py, mem_cache/memory_pool_host.py), in GB.
    """
    job = facts.job
    ranks, each = facts.get("ranks"), facts.get("gpus.requested_per_node")
    ranks = ranks if each is UNKNOWN else min(ranks, max(each, 1))
    if job.kind != "inference" or job.inference is None:
        return UNKNOWN
    if job.inference.engine == "sglang":
        return int(ranks * _hierarchical(facts))
    if job.inference.engine != "vllm":
        return UNKNOWN
    limit = _number(facts.get("launch.environment.LMCACHE_MAX_LOCAL_CPU_SIZE"))
    connector = _option(facts, "kv-transfer-config")
    used = connector is not UNKNOWN and "lmcache" in str(connector).lower()
    return int(_number(_option(facts, "kv-offloading-size")) * GIB + (ranks * limit * GIB if used else 0))


def _hierarchical(facts: Facts) -> float:
    """Bytes of one rank: `hicache_size`, else the cache on the GPU times `hicache_ratio`, if that is stated."""
    if _option(facts, "enable-hierarchical-cache") is not True and _option(facts, "enable-hicache") is not True:
        return 0
    size, ratio = _number(_option(facts, "hicache-size")), _number(_option(facts, "hicache-ratio"))
    cache = facts.outline.kv_cache if facts.outline is not None else None
    pool = cache.tokens * cache.bytes_per_token if cache is not None else 0
    return size * _GB if size else ratio * pool


_GB = 10**9


def _option(facts: Facts, name: str) -> Any:
    """An option of the server, in either spelling."""
    found = facts.get(f"config.{name}")
    return facts.get(f"config.{name.replace('-', '_')}") if found is UNKNOWN or found is None else found


def _number(value: Any) -> float:
    """A number, as text or not; 0 for what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0
    return found if 0 < found < MOST else 0


@fact("checkpoint.bytes", "bytes")
def _checkpoint(facts: Facts) -> Any:
    """Size of the model's checkpoint if it is not quantized: parameters x bytes of the dtype in config.json."""
    if facts.model is None:
        return UNKNOWN
    config, name = facts.model.config, str(facts.model.id).lower()
    if config.get("quantization_config") or any(word in name for word in _QUANTIZED):
        return UNKNOWN
    width = _WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype")))
    return UNKNOWN if width is None else facts.model.parameters * width


_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
_QUANTIZED = ("awq", "gptq", "gguf", "fp8", "int4", "int8", "w4a16", "w8a8", "4bit", "8bit", "bnb", "mlx")
"""Parts of names of repositories that hold quantized weights."""


@fact("trust_remote_code")
def _remote_code(facts: Facts) -> Any:
    """Whether the job runs code from the model's repository (`trust_remote_code`)."""
    return any(facts.get(f"config.{key}") is True for key in _REMOTE_CODE)


@fact("revision")
def _revision(facts: Facts) -> Any:
    """The revision of the model's repository in the config; null without one."""
    values = (facts.get(f"config.{key}") for key in _REVISION)
    return next((value for value in values if isinstance(value, str)), None)


@fact("revision.is_commit")
def _commit(facts: Facts) -> Any:
    """Whether the revision is a commit hash rather than a branch or tag."""
    revision = facts.get("revision")
    return isinstance(revision, str) and len(revision) >= 7 and set(revision.lower()) <= set("0123456789abcdef")


@fact("model.local")
def _local(facts: Facts) -> Any:
    """Whether the model is a local path rather than a Hub id."""
    name = facts.job.model
    return not isinstance(name, str) or name.startswith((".", "/", "~")) or name.count("/") != 1


@fact("model.in_transformers")
def _in_transformers(facts: Facts) -> Any:
    """Whether Transformers itself implements the model's type, so that code from the repository is not needed."""
    if facts.model is None or not facts.model.exact:
        return False
    return facts.model.model_type in _NATIVE and _FIRST_QWEN not in facts.model.config


@fact("image.pinned")
def _image(facts: Facts) -> Any:
    """Whether the container image has a digest, or a tag other than `latest`, `nightly` and `main`."""
    image = facts.get("launch.container.image")
    if not isinstance(image, str) or "$" in image or "{" in image:
        return UNKNOWN
    name, _, tag = image.rpartition("/")[2].partition(":")
    if "@sha256:" in image or (not tag and _VERSION.search(name)):
        return True
    return bool(tag) and tag.split("-")[0] not in _MOVING


_REMOTE_CODE = (
    "trust_remote_code", "trust-remote-code", "model.trust_remote_code", "model_args.trust_remote_code",
    "actor_rollout_ref.model.trust_remote_code", "data.trust_remote_code", "policy.trust_remote_code",
)  # fmt: skip
_REVISION = (
    "revision", "code_revision", "code-revision", "model_revision", "revision_of_model", "model.revision",
    "model_args.model_revision",
)  # fmt: skip
_NATIVE = frozenset(
    {
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
        "phi", "phi3", "falcon", "gpt2", "gpt_neox", "gptj", "opt", "bloom", "mpt", "starcoder2", "olmo", "olmo2",
        "granite", "cohere", "cohere2", "stablelm", "gpt_oss", "gpt_bigcode",
    }
)  # fmt: skip
"""Types of CONFIG_MAPPING_NAMES in transformers 5.23 that were in it since before or soon after their first model."""
_FIRST_QWEN = "kv_channels"
"""A key of QWenConfig, the code in the repositories of the first Qwen, which the catalogue reads as qwen2."""
_VERSION = re.compile(r"\d[.-]\d")
_MOVING = frozenset({"latest", "nightly", "main", "master", "dev", "edge"})
