"""Facts about what a job is started on: GPUs asked for and used, main memory, disk."""

from __future__ import annotations

import re
from typing import Any

from ..expression import UNKNOWN
from .facts import Facts, fact


@fact("ranks", type="whole number")
def _ranks(facts: Facts) -> Any:
    """GPUs that the job itself puts to use: the product of a server's parallel sizes, the processes of a training."""
    job = facts.job
    if job.kind == "training":
        return job.world_size
    return job.model_shards * (job.parallelism.data or 1)


@fact("gpus.asked_per_node", type="whole number")
def _per_node(facts: Facts) -> Any:
    """GPUs that the launcher asks for on each node."""
    asked = facts.job.hardware.asked_gpus
    return UNKNOWN if asked is None else asked // (facts.job.hardware.nodes or 1)


@fact("gpus.offered", type="whole number")
def _offered(facts: Facts) -> Any:
    """GPUs that the launcher asks for to run one copy of the job: a server that one node holds runs on each node."""
    asked, each = facts.job.hardware.asked_gpus, facts.get("gpus.asked_per_node")
    if asked is None:
        return UNKNOWN
    return each if facts.job.kind == "inference" and facts.get("ranks") <= each else asked


@fact("gpus.visible", type="whole number")
def _visible(facts: Facts) -> Any:
    """Devices that `CUDA_VISIBLE_DEVICES` of the launch lists."""
    listed = facts.get("launch.environment.CUDA_VISIBLE_DEVICES")
    parts = [part.strip() for part in listed.split(",")] if isinstance(listed, str) else []
    return len(parts) if parts and all(part.isdigit() for part in parts) else UNKNOWN


@fact("gpus.refused_in_one_process", type="true or false")
def _refused(facts: Facts) -> Any:
    """Whether the program's release refuses the several GPUs that its only process sees."""
    origin = facts.job.origins.get("parallelism.one_process")
    return origin is not None and origin.kind == "derived" and not facts.job.parallelism.one_process


def _host_fact(name: str, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        estimate = facts.outline
        memory = estimate.host_memory if estimate is not None else None
        return UNKNOWN if memory is None else getattr(memory, name)

    derive.__doc__ = meaning
    fact(f"host.{name}", "bytes")(derive)


_host_fact("load", "Main memory of one node that the ranks take while the model is loaded.")
_host_fact("train", "Main memory of one node that offload takes while training.")
_host_fact("save", "Main memory of one node while a whole checkpoint is put together, with what offload holds.")
_host_fact("high", "The most main memory of one node that the job may take.")


@fact("checkpoint.bytes", "bytes")
def _checkpoint(facts: Facts) -> Any:
    """Size of the model's own files, where they are not quantised: parameters x bytes of the dtype in config.json."""
    if facts.model is None:
        return UNKNOWN
    config, name = facts.model.config, str(facts.model.id).lower()
    if config.get("quantization_config") or any(word in name for word in _PACKED):
        return UNKNOWN
    width = _WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype")))
    return UNKNOWN if width is None else facts.model.parameters * width


_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
_PACKED = ("awq", "gptq", "gguf", "fp8", "int4", "int8", "w4a16", "w8a8", "4bit", "8bit", "bnb", "mlx")
"""Parts of names of repositories that hold packed weights."""


@fact("remote_code")
def _remote_code(facts: Facts) -> Any:
    """Whether the job runs code that comes with the model's repository (`trust_remote_code`)."""
    return any(facts.get(f"config.{key}") is True for key in _REMOTE_CODE)


@fact("revision")
def _revision(facts: Facts) -> Any:
    """The revision of the model's repository that the config names; null without one."""
    values = (facts.get(f"config.{key}") for key in _REVISION)
    return next((value for value in values if isinstance(value, str)), None)


@fact("revision.commit")
def _commit(facts: Facts) -> Any:
    """Whether that revision is a commit, which cannot be moved: 40 hex digits."""
    revision = facts.get("revision")
    return isinstance(revision, str) and len(revision) >= 7 and set(revision.lower()) <= set("0123456789abcdef")


@fact("model.local")
def _local(facts: Facts) -> Any:
    """Whether the model is a path rather than the id of a repository."""
    name = facts.job.model
    return not isinstance(name, str) or name.startswith((".", "/", "~")) or name.count("/") != 1


@fact("model.native")
def _native(facts: Facts) -> Any:
    """Whether the model's type is one of Transformers' own whose repositories hold no code that is needed."""
    if facts.model is None or not facts.model.exact:
        return False
    return facts.model.model_type in _NATIVE and _FIRST_QWEN not in facts.model.config


@fact("image.pinned")
def _image(facts: Facts) -> Any:
    """Whether the container's image has a digest, or a tag other than `latest`, `nightly` and `main`."""
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
