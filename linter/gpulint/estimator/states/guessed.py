"""How a checkpoint may be stored whose config.json nobody has read: what its name says is a guess.

Read is a `quantization_config`, in a config.json or a row of the catalogue; known is the word in an id that the
catalogue lists, but for the format that AWQ and GPTQ stand for, and in those of publishers who hold to one. Of any
other name it is a guess: the open fact `weights.stored`, over whose values the estimate and the rules are asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...job.origin import Origin
from ...job.weights import UNPACKED, Quantization
from ...models.names import named_quantization as word_of
from .checkpoint import named_quantization

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model

PATH = "weights.stored"

UNTOLD = ("awq", "gptq", "int4")
"""Methods that a repository is named after whatever library wrote it: AutoAWQ and GPTQModel, or llm-compressor in the
format of compressed-tensors."""

COMPRESSED = Quantization("pack-quantized", 4, 128)
"""What llm-compressor's W4A16 recipes write (compressed_tensors/quantization/quant_scheme.py `W4A16`)."""

_OWN_FORMAT = ("qwen", "thebloke", "hugging-quants", "casperhansen", "unsloth")
"""Publishers whose every repository is in the format that its name says."""


def alternatives(model: Model | None, name: str) -> tuple[Quantization, ...]:
    """What a checkpoint may be besides what its name says; none where that is known or says nothing.

    `name` counts where the model is unknown.
    """
    method = word_of(name) if model is None else model.named_quantization
    owner = (name if model is None else model.id).lower().rpartition("/")[0]
    if method is None or owner in _OWN_FORMAT:
        return ()
    listed = model is not None and model.listed
    return (*((COMPRESSED,) if method in UNTOLD else ()), *(() if listed else (UNPACKED,)))


def opened(job: Job, model: Model | None) -> Job:
    """The job with the fact `weights.stored` open, at what the name says, where only a name says it."""
    name = job.model if isinstance(job.model, str) else ""
    others = alternatives(model, name) if job.weights.stored is None else ()
    method = word_of(name) if model is None else model.named_quantization
    if not others or method is None:
        return job
    guess = (named_quantization(job, model) if model is not None else None) or Quantization(method)
    note = f"by its name, {name or (model.id if model is not None else method)}: no config.json of it was read"
    open_ = replace(job, weights=replace(job.weights, stored=guess), unstated=[*job.unstated, PATH])
    origin = Origin("guessed", note, key="the checkpoint's quantization", values=others)
    open_.origins = {**job.origins, PATH: origin}
    return open_


def weighs(job: Job, model: Model) -> bool:
    """Whether how the checkpoint is stored may count: nothing else says it, or vLLM is told what its config says."""
    return job.weights.quantization is None and named_quantization(job, model) is not None


def as_stored(job: Job, model: Model) -> Model:
    """The model with the `quantization_config` of `weights.stored`, where it differs from what its name says."""
    stored = job.weights.stored
    if stored is None or stored == named_quantization(job, model):
        return model
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    if stored != UNPACKED:
        config["quantization_config"] = _config(stored)
    return model._replace(config=config, named_quantization=None)


def method_of(stored: Quantization) -> str | None:
    """The `quant_method` that a config.json has for it; None for what is not packed."""
    if stored == UNPACKED:
        return None
    return method_named(stored.method)


def method_named(method: str) -> str:
    """The `quant_method` of one of our methods."""
    return "bitsandbytes" if method.startswith("bnb-") else _METHODS.get(method, method)


_METHODS = {
    "pack-quantized": "compressed-tensors", "pack-quantized-asymmetric": "compressed-tensors",
    "finegrained-fp8": "fp8",
}  # fmt: skip


def _config(stored: Quantization) -> dict[str, Any]:
    """The `quantization_config` that `stored_quantization` reads as `stored`."""
    method = method_named(stored.method)
    if method == "bitsandbytes":
        kind = stored.method.removeprefix("bnb-")
        if kind == "int8":
            return {"quant_method": method, "load_in_8bit": True}
        double = {"bnb_4bit_use_double_quant": stored.double_quant}
        return {"quant_method": method, "load_in_4bit": True, "bnb_4bit_quant_type": kind, **double}
    if method == "compressed-tensors":
        symmetric = not stored.method.endswith("asymmetric")
        weights = {"num_bits": stored.bits, "type": "int", "group_size": stored.group_size, "symmetric": symmetric}
        return {"quant_method": method, "config_groups": {"group_0": {"weights": weights}}}
    block = {"weight_block_size": [128, 128]} if stored.method == "finegrained-fp8" else {}
    return {"quant_method": method, "bits": stored.bits, "group_size": stored.group_size, **block}
