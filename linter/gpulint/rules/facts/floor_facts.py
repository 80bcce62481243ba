"""Facts about the least that a job can take where it cannot be estimated: what is known of it are the parameters.

Bytes a parameter: Transformers, torch.optim.AdamW and DeepSpeed's BF16 optimizer; a floor leaves out activations,
buffers and the CUDA context. Nothing is said where an adapter, frozen parts or quantization may lower it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.names import meant_by
from ...source.tables import read_table
from ..expression import UNKNOWN
from .facts import Facts, fact

if TYPE_CHECKING:
    from ...job.job import Job

_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}

_FEWER = re.compile(r"lora|peft|adapter|freeze|quant|load_in|[48]bit|galore|apollo|badam|lomo|offload")
"""Parts of keys that may leave less to be held or trained than all of a model."""

_PACKED = re.compile(r"awq|gptq|gguf|fp8|fp4|int[48]|[48]-?bit|bnb|w\d+a\d+|exl2|mlx|nf4", re.IGNORECASE)


class Diffusion(NamedTuple):
    """Parameters of a diffusion model: of the part that its trainers train, and of what they load besides."""

    trained: int
    loaded: int


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "sizes.json")


def size_of(reference: str) -> int | None:
    """The parameters of a published model by the last name of its repository or folder, rounded down."""
    millions = _table()["models"].get(_leaf(reference))
    return None if millions is None else int(millions) * 10**6


def diffusion_of(reference: str) -> Diffusion | None:
    """The parameters of a published diffusion model."""
    row = _table()["diffusion"].get(_leaf(reference))
    return None if row is None else Diffusion(row["trained"] * 10**6, row["loaded"] * 10**6)


def _leaf(reference: str) -> str:
    return reference.rstrip("/").rpartition("/")[2].lower()


@fact("floor.known", "bytes")
def _known(facts: Facts) -> Any:
    """The least that weights, gradients and optimizer states of a job take on a GPU, where only the parameters of the
    model are known."""
    job, name = facts.job, facts.job.model
    if facts.model is not None or not isinstance(name, str) or _PACKED.search(name) or job.weights.quantization:
        return UNKNOWN
    parameters = size_of(name)
    if parameters is None:
        return UNKNOWN
    if job.kind == "inference":
        offloads = job.inference is not None and job.inference.cpu_offload_gb
        return UNKNOWN if offloads or job.unread else parameters * _width(job) // max(1, job.model_shards)
    return _trained(facts, parameters)


def _width(job: Job) -> int:
    return _WIDTHS.get(str(job.weights.dtype), 2)


def _trained(facts: Facts, parameters: int) -> Any:
    """All parameters trained with an Adam of two moments; UNKNOWN for anything else."""
    job = facts.job
    keys = [key.lower() for key in map(str, facts.reading.config.root.keys())]
    frozen = any(key.startswith("tune_") and facts.get(f"config.{key}") in (False, "false", "False") for key in keys)
    if job.method != "full" or job.adapter is not None or frozen or any(map(_FEWER.search, keys)):
        return UNKNOWN
    name = str(job.optimizer.name or "")
    zero, fsdp, ranks = job.parallelism.zero, job.parallelism.fsdp, max(1, job.data_parallel)
    if (zero is not None or fsdp is not None) and facts.get("gpus.assumed") is not False:
        return UNKNOWN  # more ranks than are assumed hold less each
    if "adam" not in name or re.search(r"8bit|4bit|paged|mini|fp8", name) or job.model_shards > 1:
        return UNKNOWN
    if zero is not None:
        return _under_zero(zero, ranks) * parameters // ranks
    width = _width(job)
    shares = ranks if fsdp is not None else 1
    return UNKNOWN if fsdp is not None and fsdp.offload else parameters * 4 * width // shares


def _under_zero(zero: Any, ranks: int) -> int:
    """Bytes a parameter, of all ranks together: 16-bit weights and gradients, 32-bit weights and moments.

    Those that a stage leaves whole on each rank count once a rank.
    """
    weights, gradients, states = 2, 2, 12
    if zero.offload_parameters.device != "none":
        weights = 0
    if zero.offload_optimizer.device != "none":
        gradients = states = 0
    weights *= 1 if zero.stage >= 3 else ranks
    gradients *= 1 if zero.stage >= 2 else ranks
    states *= 1 if zero.stage >= 1 else ranks
    return weights + gradients + states


@fact("floor.diffusion", "bytes")
def _diffusion(facts: Facts) -> Any:
    """The least that a trainer of diffusers takes on a GPU: the weights of the trained part, with its gradients and
    Adam moments in 32 bits where all of it is trained."""
    name, way = facts.get("launch.demands.model"), facts.get("launch.demands.diffusion")
    model = diffusion_of(name) if isinstance(name, str) else None
    if model is None or not isinstance(way, str):
        return UNKNOWN
    per = {"lora": 2, "full": 16, "full-8bit": 10}.get(way)
    return UNKNOWN if per is None else per * model.trained


@fact("floor.diffusion.loaded", "bytes")
def _diffusion_loaded(facts: Facts) -> Any:
    """What such a trainer of adapters holds at first, with the text encoders and the autoencoder in 16 bits."""
    name = facts.get("launch.demands.model")
    model = diffusion_of(name) if isinstance(name, str) else None
    return UNKNOWN if model is None else 2 * (model.trained + model.loaded)


@fact("floor.weights", "bytes")
def _weights(facts: Facts) -> Any:
    """The weights in 16 bits of the model that the flags of a script of no known kind name, where it sees one GPU; of a
    server whose model is no further known, those on a GPU."""
    if facts.job.kind == "inference":
        return facts.get("floor.known")
    name = facts.get("launch.demands.model")
    if not isinstance(name, str) or _PACKED.search(name) or facts.get("launch.demands.packed") is True:
        return UNKNOWN
    if 1 not in (facts.get("gpus.visible"), facts.job.hardware.gpus, facts.job.hardware.asked_gpus):
        return UNKNOWN
    parameters = _parameters(name, facts)
    return UNKNOWN if parameters is None else 2 * parameters


def _parameters(name: str, facts: Facts) -> int | None:
    from ...models.model import UnknownModel
    from ...models.resolve import resolve

    for reference in (name, *meant_by(name)):
        found = size_of(reference)
        if found is not None:
            return found
        try:
            return resolve(reference, facts.folder, facts.project.root).parameters
        except UnknownModel:
            continue
    return None
